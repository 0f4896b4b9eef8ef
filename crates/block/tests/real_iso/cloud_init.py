# Does what a data source of cloud-init does to find a device, and reads what was
# unpacked from it as if it were mounted.
import sys

from cloudinit import util
from cloudinit.sources.DataSourceConfigDrive import find_candidate_devs
from cloudinit.sources.helpers import openstack
import yaml

source, device, unpacked = sys.argv[1:]
by_type = util.find_devs_with("TYPE=iso9660")
assert device in by_type, by_type
if source == "NoCloud":
    by_label = util.find_devs_with("LABEL=cidata")
    assert device in by_label, by_label
    seed = util.pathprefix2dict(unpacked, required=["user-data", "meta-data"], optional=["network-config"])
    instance, user_data = yaml.safe_load(seed["meta-data"])["instance-id"], seed["user-data"]
    assert yaml.safe_load(seed["network-config"]) == {"version": 2}
else:
    candidates = find_candidate_devs()
    assert device in candidates, candidates
    results = openstack.ConfigDriveReader(unpacked).read_v2()
    instance, user_data = results["metadata"]["instance-id"], results["userdata"]
print("instance", instance)
print(user_data.decode())
