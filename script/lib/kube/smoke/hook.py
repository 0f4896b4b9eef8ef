"""Answers what the API server asks before it takes an object."""

import http.server
import json
import ssl


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        allowed = asked["name"] != "forbidden"
        answer = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": asked["uid"], "allowed": allowed, "status": {"message": "the hook says no"}}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


server = http.server.ThreadingHTTPServer(("", 8443), Hook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/hook/tls.crt", "/hook/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
