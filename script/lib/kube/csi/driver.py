#!/usr/bin/python3
"""A CSI driver for tests, on a node: volumes are files, shown by loop devices.

    driver.py NAME VOLUMES KUBELET-ROOT

The volume with the handle H is the file VOLUMES/H: as a block volume it is that
file's bytes, as a filesystem volume the ext4 in it. Volumes are staged, then
published, as drivers of real storage do it. There is no controller: volumes are made
beforehand, and their PersistentVolumes with them.

Prints `registered` when the kubelet has taken the driver, and ends when stdin does.
"""

import os
import subprocess
import sys
import tempfile
import threading
from concurrent import futures

import grpc


def compiled(name):
    """The module that protoc makes of NAME.proto."""
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as directory:
        run("protoc", f"--proto_path={here}", f"--python_out={directory}", f"{name}.proto")
        sys.path.insert(0, directory)
        sys.dont_write_bytecode = True
        module = __import__(f"{name}_pb2")
        sys.path.remove(directory)
    return module


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


csi = compiled("csi")
registration = compiled("registration")


class Identity:
    def GetPluginInfo(self, request):
        return {"name": NAME, "vendor_version": "1"}

    def GetPluginCapabilities(self, request):
        return {}

    def Probe(self, request):
        return {}


class Registration:
    def GetInfo(self, request):
        return {"type": "CSIPlugin", "name": NAME, "endpoint": ENDPOINT, "supported_versions": ["1.0.0"]}

    def NotifyRegistrationStatus(self, request):
        print("registered" if request.plugin_registered else request.error, flush=True)
        return {}


class Node:
    def __init__(self):
        self.lock = threading.Lock()
        # Block volumes that are staged: the loop device, and that it is open. It detaches
        # itself when nobody has it open any more, however this ends.
        self.devices = {}

    def NodeGetInfo(self, request):
        return {"node_id": os.uname().nodename}

    def NodeGetCapabilities(self, request):
        return {"capabilities": [{"rpc": {"type": "STAGE_UNSTAGE_VOLUME"}}]}

    def NodeStageVolume(self, request):
        volume, staged = file_of(request.volume_id), request.staging_target_path
        with self.lock:
            if request.volume_capability.HasField("block"):
                if request.volume_id not in self.devices:
                    self.devices[request.volume_id] = attach(volume)
            elif not os.path.ismount(staged):
                os.makedirs(staged, exist_ok=True)
                options = ["loop", *request.volume_capability.mount.mount_flags]
                run("mount", "-t", "ext4", "-o", ",".join(options), volume, staged)
        return {}

    def NodeUnstageVolume(self, request):
        with self.lock:
            device = self.devices.pop(request.volume_id, None)
            if device is not None:
                os.close(device[1])
            elif os.path.ismount(request.staging_target_path):
                run("umount", request.staging_target_path)
        return {}

    def NodePublishVolume(self, request):
        target = request.target_path
        with self.lock:
            if request.volume_capability.HasField("block"):
                source = self.devices[request.volume_id][0]
                os.makedirs(os.path.dirname(target), exist_ok=True)
                open(target, "a").close()
                # Not by its kind: a file may be a mount, too.
                if not os.path.samefile(source, target):
                    run("mount", "--bind", source, target)
            elif not os.path.ismount(target):
                os.makedirs(target, exist_ok=True)
                run("mount", "--bind", request.staging_target_path, target)
                if request.readonly:
                    run("mount", "-o", "remount,bind,ro", target)
        return {}

    def NodeUnpublishVolume(self, request):
        target = request.target_path
        with self.lock:
            if os.path.isdir(target):
                if os.path.ismount(target):
                    run("umount", target)
                os.rmdir(target)
            elif os.path.exists(target):
                if not os.path.isfile(target):
                    run("umount", target)
                os.remove(target)
        return {}


def file_of(handle):
    """Handles are names, not paths."""
    file = os.path.join(VOLUMES, handle)
    if "/" in handle or handle in ("", ".", "..") or not os.path.isfile(file):
        raise FileNotFoundError(f"there is no volume {handle!r}")
    return file


def attach(file):
    device = run("losetup", "--find", "--show", file)
    held = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    run("losetup", "--detach", device)
    return device, held


def handler(descriptor, service):
    """What answers a service of a .proto with the methods of an object."""

    def method(about):
        answers = about.output_type._concrete_class
        call = getattr(service, about.name)

        def answer(request, context):
            try:
                return answers(**call(request))
            except FileNotFoundError as error:
                context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            except Exception as error:
                print(f"{about.name}: {error}", file=sys.stderr, flush=True)
                context.abort(grpc.StatusCode.INTERNAL, str(error))

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=about.input_type._concrete_class.FromString,
            response_serializer=answers.SerializeToString,
        )

    methods = {about.name: method(about) for about in descriptor.methods}
    return grpc.method_handlers_generic_handler(descriptor.full_name, methods)


def serve(socket, *handlers):
    os.makedirs(os.path.dirname(socket), exist_ok=True)
    if os.path.exists(socket):
        os.remove(socket)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers(handlers)
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


NAME, VOLUMES, ROOT = sys.argv[1:]
ENDPOINT = f"{ROOT}/plugins/{NAME}/csi.sock"

services = csi.DESCRIPTOR.services_by_name
driver = serve(ENDPOINT, handler(services["Identity"], Identity()), handler(services["Node"], Node()))
services = registration.DESCRIPTOR.services_by_name
known = serve(f"{ROOT}/plugins_registry/{NAME}-reg.sock", handler(services["Registration"], Registration()))
sys.stdin.read()
known.stop(None)
driver.stop(None).wait()
