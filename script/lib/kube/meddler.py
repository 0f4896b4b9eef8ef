#!/usr/bin/env python3
"""A mutating webhook that makes the same change to whatever it is asked about.

    meddler.py ADDRESS DIRECTORY PATCH     PATCH: a JSON patch, as text

It listens at ADDRESS with TLS, under an authority of its own in DIRECTORY, prints one
line of JSON, {"url": …, "authority": …}, and lives until its standard input ends.
"""

import base64
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading

address, directory, patch = sys.argv[1:]
key, certificate = (os.path.join(directory, name) for name in ("key.pem", "cert.pem"))


class Meddler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        review = json.loads(self.rfile.read(length))
        response = {
            "uid": review["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(patch.encode()).decode(),
        }
        answer = {key: review[key] for key in ("apiVersion", "kind")}
        body = json.dumps({**answer, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


os.makedirs(directory, exist_ok=True)
# One certificate that is its own authority.
subprocess.run(
    ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    + ["-keyout", key, "-out", certificate, "-subj", "/CN=meddler", "-addext", f"subjectAltName=IP:{address}"],
    check=True,
    stderr=subprocess.DEVNULL,
)
server = http.server.ThreadingHTTPServer((address, 0), Meddler)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(certificate, key)
server.socket = tls.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
with open(certificate, "rb") as file:
    authority = base64.b64encode(file.read()).decode()
url = f"https://{address}:{server.server_address[1]}/"
print(json.dumps({"url": url, "authority": authority}), flush=True)
sys.stdin.read()
