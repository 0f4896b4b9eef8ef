//! Where a disk's bytes come from.

use super::schema::Schema;

pub(super) fn source() -> Schema {
    Schema::object("Where its bytes come from: exactly one of the kinds.")
        .field("iscsi", iscsi())
        .field(
            "lun",
            Schema::number("Beside iscsi, the number of the unit; as storage containers answer."),
        )
        .field("rbd", rbd())
        .field("nbd", nbd())
        .field("gluster", gluster())
        .field(
            "http",
            http("A file of a web server, http or https: to read, or below a copy."),
        )
        .field("https", http("The same, by https only."))
        .field("pvc", claim())
        .field("image", image())
        .field("container", container())
        .field(
            "name",
            Schema::text("With type: PersistentVolumeClaim, the claim's name."),
        )
        .field(
            "create",
            Schema::flag("With type: PersistentVolumeClaim, whether a missing disk.img is made."),
        )
}

fn iscsi() -> Schema {
    Schema::object("A unit of an iSCSI target.")
        .require(["host", "portal"])
        .field(
            "host",
            server("The server; port 3260 unless another is named."),
        )
        .field(
            "portal",
            Schema::text("The target's name, such as iqn.2001-04.com.example:disk."),
        )
        .field("lun", Schema::number("The number of the unit."))
        .field(
            "initiator",
            Schema::text("The name that the server knows us by."),
        )
        .field(
            "auth",
            auth(
                "A Secret with username and password, or node.session.auth.username and .password.",
            ),
        )
}

fn rbd() -> Schema {
    let monitor = server("A monitor; port 6789 unless another is named.");
    Schema::object("An image in a Ceph pool.")
        .require(["monitors", "pool", "image"])
        .field("monitors", Schema::list(monitor, "The cluster's monitors."))
        .field("pool", Schema::text("The pool."))
        .field("image", Schema::text("The image in it."))
        .field("user", Schema::text("The Ceph user. admin if absent."))
        .field("auth", auth("A Secret with the user's key under key."))
}

fn nbd() -> Schema {
    Schema::object("An export of an NBD server, at a host or at a socket of the node.")
        .field(
            "host",
            server("The server; port 10809 unless another is named."),
        )
        .field(
            "unix",
            Schema::text("A socket below the node's directory for them."),
        )
        .field(
            "export",
            Schema::text("The export. The server's default if absent."),
        )
        .field(
            "tls",
            Schema::flag("Whether to use TLS, with the node's certificates."),
        )
}

fn gluster() -> Schema {
    let host = server("A server; port 24007 unless another is named.");
    Schema::object("A file of a Gluster volume.")
        .require(["hosts", "volume", "path"])
        .field("hosts", Schema::list(host, "Its servers."))
        .field("volume", Schema::text("The volume."))
        .field("path", Schema::text("The file in it."))
}

fn http(description: &'static str) -> Schema {
    Schema::object(description)
        .require(["url"])
        .field(
            "url",
            Schema::text("Its address, without a user or a password."),
        )
        .field(
            "auth",
            auth("A Secret with username and password; with a copy of mode clone only."),
        )
}

fn claim() -> Schema {
    Schema::object("A PersistentVolumeClaim of the VM's namespace.")
        .field_or(
            "claimname",
            "claimName",
            Schema::text("Its name."),
            "The other spelling of claimname. Keep one of the two.",
        )
        .field(
            "create",
            Schema::flag("Whether a missing disk.img is made, as large as the claim asks for."),
        )
}

fn image() -> Schema {
    Schema::object("An image of the node's store. The guest gets an overlay over it unless copy says otherwise.")
        .require(["name"])
        .field("name", Schema::text("Its name or address, with a digest or without."))
}

fn container() -> Schema {
    Schema::object("A container that makes the storage and answers where it is. Takes every field of a container.")
        .require(["image"])
        .field("image", Schema::text("The container's image."))
}

fn server(description: &'static str) -> Schema {
    // {name, port}, or host:port.
    Schema::short_or_long(description)
        .field("name", Schema::text("Its name or address."))
        .field("port", Schema::number_or_text("Its port."))
}

fn auth(description: &'static str) -> Schema {
    Schema::object(description).require(["secretRef"]).field(
        "secretRef",
        Schema::short_or_long("The Secret's name, or {name}; in the VM's namespace.")
            .field("name", Schema::text("The Secret's name.")),
    )
}
