/* Waits, and buries children that others have left to it, until it is told to end:
 * the first container of a pod, and the first process of a machine of ours. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    sigset_t wanted;
    int signal;

    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGTERM);
    /* Blocked, they wait to be asked for: none is lost between two questions. */
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    while (sigwait(&wanted, &signal) == 0) {
        if (signal != SIGCHLD) {
            return 0;
        }
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
    }
    return 1;
}
