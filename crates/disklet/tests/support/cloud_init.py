"""Reads cloud-init documents as cloud-init does, with cloud-init's own code.

Standard input has a JSON list of images: {"userData", "networkConfig",
"label"}. Standard output has a JSON list of what a guest would make of each.
"""

import base64
import json
import sys

import yaml
from cloudinit.config import cc_write_files
from cloudinit.net.network_state import parse_net_config_data
from cloudinit.sources.helpers.openstack import convert_net_json
from cloudinit.util import load_yaml


def files(config):
    """Paths, modes and bytes, as the write_files module would write them."""
    found = []
    for entry in config.get("write_files") or []:
        encodings = cc_write_files.canonicalize_extraction(entry.get("encoding"))
        content = cc_write_files.extract_contents(entry.get("content", ""), encodings)
        if isinstance(content, str):
            content = content.encode()
        mode = cc_write_files.decode_perms(entry.get("permissions"), 0o644)
        found.append(
            {
                "path": entry["path"],
                "mode": mode,
                "content": base64.b64encode(content).decode(),
            }
        )
    return found


def network(image):
    """The interfaces that would be configured: name, address, how."""
    text = image["networkConfig"]
    if text is None:
        return []
    if image["label"] == "config-2":
        data = json.loads(text)
        macs = {link["ethernet_mac_address"]: "eth0" for link in data["links"]}
        config = convert_net_json(data, known_macs=macs)
    else:
        config = load_yaml(text)
    state = parse_net_config_data(config, skip_broken=False)
    return [
        {
            "name": interface["name"],
            "mac": interface["mac_address"],
            "subnets": [subnet["type"] for subnet in interface["subnets"]],
        }
        for interface in state.iter_interfaces()
    ]


def read(image):
    is_config = image["userData"].startswith("#cloud-config\n")
    config = yaml.safe_load(image["userData"]) if is_config else None
    return {
        "config": config,
        "files": files(config) if image.get("wantsFiles") and config else [],
        "network": network(image),
    }


json.dump([read(image) for image in json.load(sys.stdin)], sys.stdout)
