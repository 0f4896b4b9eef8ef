//! The smallest guests: one sector of code, started by the BIOS. And where the
//! grown ones are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A disk that a Linux boots from, `small` or `cloud`; `script/lib/guest_image.sh`
/// tells about both. The first time, `cloud` takes minutes.
pub(crate) fn bootable(kind: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../script/lib/guest_image.sh");
    let output = Command::new(script)
        .arg(kind)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// What the host writes and the guest has to find.
pub(crate) const GREETING: &[u8] = b"written by the host";

/// Where the guest copies it to: the third sector.
pub(crate) const COPY: u64 = 1024;

/// What the guest says on its serial port.
pub(crate) const HELLO: &str = "hello from the guest";

/// A disk of 1 MiB. Its guest says hello, reads the second sector, writes it to
/// the third, and switches the machine off.
pub(crate) fn disk() -> Vec<u8> {
    build(&[&start(), &say(HELLO), COPIES, OFF])
}

/// The same, but between hello and the rest it waits for a key, and says it
/// back.
pub(crate) fn waiting_disk() -> Vec<u8> {
    build(&[&start(), &say(HELLO), ECHOES_ONE, COPIES, OFF])
}

/// The same, but instead of the rest it says the first line of each of so many
/// further disks, in the order in which they boot.
pub(crate) fn reading_disk(further: u8) -> Vec<u8> {
    build(&[&start(), &say(HELLO), &says_lines(further), OFF])
}

/// The same, but it also writes each first sector back, with `#` for the first
/// letter.
pub(crate) fn marking_disk(further: u8) -> Vec<u8> {
    build(&[&start(), &say(HELLO), &marks_lines(further), OFF])
}

/// A first line after a guest has marked it.
pub(crate) fn marked(line: &str) -> String {
    format!("#{}", &line[1..])
}

fn build(code: &[&[u8]]) -> Vec<u8> {
    let code = code.concat();
    assert!(code.len() <= 510, "more than a sector");
    let mut disk = vec![0; 1 << 20];
    disk[..code.len()].copy_from_slice(&code);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[512..512 + GREETING.len()].copy_from_slice(GREETING);
    disk
}

/// Segments at zero, a stack below the code.
fn start() -> Vec<u8> {
    [
        &[0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0][..], // xor ax,ax; mov ds,ax; es; ss
        &[0xbc, 0x00, 0x7c],                                   // mov sp,0x7c00
    ]
    .concat()
}

/// Letter by letter to the first serial port.
fn say(text: &str) -> Vec<u8> {
    let mut code = vec![0xba, 0xf8, 0x03]; // mov dx,0x3f8
    for byte in text.bytes().chain(*b"\r\n") {
        code.extend([0xb0, byte, 0xee]); // mov al,byte; out dx,al
    }
    code
}

const ECHOES_ONE: &[u8] = &[
    0xba, 0xfd, 0x03, // mov dx,0x3fd
    0xec, 0xa8, 0x01, 0x74, 0xfb, // in al,dx; test al,1; jz back
    0xba, 0xf8, 0x03, 0xec, 0xee, // mov dx,0x3f8; in al,dx; out dx,al
];

const COPIES: &[u8] = &[
    0xb2, 0x80, 0xb6, 0x00, 0xbb, 0x00, 0x80, // mov dl,0x80; dh,0; bx,0x8000
    // The second sector is read.
    0xb8, 0x01, 0x02, 0xb9, 0x02, 0x00, 0xcd, 0x13, // mov ax,0x0201; cx,2; int 0x13
    // The third is written.
    0xb8, 0x01, 0x03, 0xb9, 0x03, 0x00, 0xcd, 0x13, // mov ax,0x0301; cx,3; int 0x13
];

/// The first sector of each further disk, up to its first line break; a
/// question mark if it cannot be read.
fn says_lines(further: u8) -> Vec<u8> {
    [
        &[0xfc, 0xbf, 0x81, 0x00][..], // cld; mov di,0x81
        // Once for each disk.
        &[0x89, 0xfa, 0xbb, 0x00, 0x80], // mov dx,di; mov bx,0x8000
        &[0xb8, 0x01, 0x02, 0xb9, 0x01, 0x00, 0xcd, 0x13], // mov ax,0x0201; cx,1; int 0x13
        &[0x73, 0x06, 0xc7, 0x06, 0x00, 0x80, 0x3f, 0x0a], // jnc on; mov word [0x8000],"?\n"
        &[0xbe, 0x00, 0x80, 0xba, 0xf8, 0x03], // mov si,0x8000; mov dx,0x3f8
        &[0xac, 0xee, 0x3c, 0x0a, 0x75, 0xfa], // lodsb; out dx,al; cmp al,10; jne back
        &[0x47, 0x81, 0xff, 0x81 + further, 0x00, 0x75, 0xd8], // inc di; cmp di,end; jne back
    ]
    .concat()
}

/// The same, and marks what was read.
fn marks_lines(further: u8) -> Vec<u8> {
    let one = [
        &[0x89, 0xfa, 0xbb, 0x00, 0x80][..], // mov dx,di; mov bx,0x8000
        &[0xb8, 0x01, 0x02, 0xb9, 0x01, 0x00, 0xcd, 0x13], // mov ax,0x0201; cx,1; int 0x13
        &[0x73, 0x06, 0xc7, 0x06, 0x00, 0x80, 0x3f, 0x0a], // jnc on; mov word [0x8000],"?\n"
        &[0xbe, 0x00, 0x80, 0xba, 0xf8, 0x03], // mov si,0x8000; mov dx,0x3f8
        &[0xac, 0xee, 0x3c, 0x0a, 0x75, 0xfa], // lodsb; out dx,al; cmp al,10; jne back
        &[0xc6, 0x06, 0x00, 0x80, b'#'],     // mov byte [0x8000],'#'
        &[0x89, 0xfa, 0xbb, 0x00, 0x80],     // mov dx,di; mov bx,0x8000
        &[0xb8, 0x01, 0x03, 0xb9, 0x01, 0x00, 0xcd, 0x13], // mov ax,0x0301; cx,1; int 0x13
    ]
    .concat();
    let end = [0x47, 0x81, 0xff, 0x81 + further, 0x00, 0x75]; // inc di; cmp di,end; jne
    let back = u8::try_from(256 - (one.len() + end.len() + 1)).unwrap();
    [&[0xfc, 0xbf, 0x81, 0x00][..], &one, &end, &[back]].concat() // cld; mov di,0x81
}

/// Power management is connected, enabled at version 1.2, and told to switch
/// off.
const OFF: &[u8] = &[
    0xb8, 0x01, 0x53, 0x31, 0xdb, 0xcd, 0x15, // mov ax,0x5301; xor bx,bx; int 0x15
    0xb8, 0x0e, 0x53, 0x31, 0xdb, 0xb9, 0x02, 0x01, 0xcd, 0x15, // ax,0x530e; cx,0x0102
    0xb8, 0x07, 0x53, 0xbb, 0x01, 0x00, 0xb9, 0x03, 0x00, 0xcd, 0x15, // ax,0x5307; bx,1; cx,3
    0xf4, 0xeb, 0xfd, // hlt, forever
];
