#!/usr/bin/env python3
"""Packs directories into a container image, without a daemon.

    script/lib/kube/image.py --name NAME:TAG --output FILE [OPTION…] DIRECTORY|LAYER.tar…

Each directory is a layer, the first one lowest; so is each tar, as it is. FILE is a tar that `ctr images
import`, `skopeo copy oci-archive:FILE` and `docker load` read. Owners become
root and times zero, so that the same files give the same image, byte for byte.

A program named by --net-bind may have ports below 1024, if whoever starts it may: its file has
the capability NET_BIND_SERVICE, permitted and not in effect, so that it starts without it as well.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import struct
import tarfile
import tempfile

EPOCH = "1970-01-01T00:00:00Z"
OCI = "application/vnd.oci.image."


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="with registry and tag, as pods name it")
    parser.add_argument("--output", required=True)
    parser.add_argument("--entrypoint", action="append", default=[], metavar="WORD", help="once per word")
    parser.add_argument("--cmd", action="append", default=[], metavar="WORD", help="once per word")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--user", default="", metavar="UID[:GID]")
    parser.add_argument("--workdir", default="/")
    parser.add_argument("--net-bind", action="append", default=[], metavar="PATH", help="as it is named in a directory")
    parser.add_argument("--gzip", action="store_true", help="compress the layers")
    parser.add_argument("directories", nargs="+", metavar="DIRECTORY|LAYER.tar")
    return parser.parse_args()


def paths(top):
    """Everything below `top`, in an order that does not depend on the file system."""
    for here, folders, files in os.walk(top):
        folders.sort()
        # A link to a directory is listed as a folder, but not walked into.
        for name in sorted(folders + files):
            yield os.path.join(here, name)


def net_bind():
    """The extended attribute: version 2, permitted, inheritable, each 32 bits, twice."""
    return struct.pack("<5I", 0x02000000, 1 << 10, 0, 0, 0).decode("ascii")


def write_layer(top, bind, out):
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in paths(top):
            entry = tar.gettarinfo(path, arcname=os.path.relpath(path, top))
            if entry is None:
                raise SystemExit(f"{path} is a socket: a layer cannot hold it")
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            if entry.name in bind:
                entry.pax_headers["SCHILY.xattr.security.capability"] = net_bind()
            if entry.isreg():
                with open(path, "rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)


class Hashed:
    """A file that knows its digest."""

    def __init__(self, out):
        self.out, self.sum = out, hashlib.sha256()

    def write(self, data):
        self.sum.update(data)
        return self.out.write(data)

    def flush(self):
        self.out.flush()

    def tell(self):
        return self.out.tell()


def write_content(top, bind, out):
    if os.path.isdir(top):
        return write_layer(top, bind, out)
    with open(top, "rb") as layer:
        shutil.copyfileobj(layer, out, 1 << 20)


def make_layer(top, bind, compress):
    """The blob as an open file, its digest, and the digest of what it unpacks to."""
    blob = tempfile.TemporaryFile()
    packed = Hashed(blob)
    if compress:
        with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0, compresslevel=1) as squeezed:
            plain = Hashed(squeezed)
            write_content(top, bind, plain)
    else:
        plain = packed
        write_content(top, bind, plain)
    return blob, packed.sum.hexdigest(), plain.sum.hexdigest()


class Archive:
    def __init__(self, path):
        self.tar = tarfile.open(path, "w")
        self.blobs = set()

    def file(self, name, content, size):
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = size, 0o644
        self.tar.addfile(entry, content)

    def text(self, name, value):
        data = json.dumps(value, sort_keys=True).encode()
        self.file(name, io.BytesIO(data), len(data))

    def blob(self, media, digest, content, size):
        if digest not in self.blobs:
            content.seek(0)
            self.file(f"blobs/sha256/{digest}", content, size)
            self.blobs.add(digest)
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": size}

    def json_blob(self, media, value):
        data = json.dumps(value, sort_keys=True).encode()
        return self.blob(media, hashlib.sha256(data).hexdigest(), io.BytesIO(data), len(data))


def configuration(options, diff_ids):
    wanted = {"Entrypoint": options.entrypoint, "Cmd": options.cmd, "Env": options.env,
              "User": options.user, "WorkingDir": options.workdir}
    return {"created": EPOCH, "architecture": "amd64", "os": "linux",
            "config": {key: value for key, value in wanted.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in diff_ids]},
            "history": [{"created": EPOCH} for _ in diff_ids]}


def main():
    options = arguments()
    for top in options.directories:
        if not os.path.isdir(top) and not tarfile.is_tarfile(top):
            raise SystemExit(f"{top} is neither a directory nor a tar: a layer is made of one")
    unfinished = options.output + ".part"
    archive = Archive(unfinished)
    layers, diff_ids = [], []
    media = OCI + "layer.v1.tar" + ("+gzip" if options.gzip else "")
    for top in options.directories:
        blob, digest, diff_id = make_layer(top, options.net_bind, options.gzip)
        layers.append(archive.blob(media, digest, blob, blob.seek(0, os.SEEK_END)))
        diff_ids.append(diff_id)
    config = archive.json_blob(OCI + "config.v1+json", configuration(options, diff_ids))
    manifest = archive.json_blob(OCI + "manifest.v1+json", {
        "schemaVersion": 2, "mediaType": OCI + "manifest.v1+json", "config": config, "layers": layers})
    manifest["annotations"] = {"io.containerd.image.name": options.name,
                               "org.opencontainers.image.ref.name": options.name.rpartition(":")[2]}
    archive.text("index.json", {"schemaVersion": 2, "mediaType": OCI + "index.v1+json", "manifests": [manifest]})
    archive.text("oci-layout", {"imageLayoutVersion": "1.0.0"})

    def place(part):
        return "blobs/" + part["digest"].replace(":", "/")

    archive.text("manifest.json", [{"Config": place(config), "RepoTags": [options.name],
                                    "Layers": [place(layer) for layer in layers]}])
    archive.tar.close()
    os.rename(unfinished, options.output)
    print(f"{options.name} {manifest['digest']}")


main()
