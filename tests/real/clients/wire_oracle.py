"""Checks what a server said against the shapes of its protocol version, and structured content against
the output schema of its tool.

Standard input: a list of {"method", "version", "result", "schema" (or null), "name"}. Prints the list of
faults as JSON.
"""

import json
import sys

import jsonschema
from mcp_types.methods import validate_server_result

faults = []
for said in json.load(sys.stdin):
    try:
        validate_server_result(said["method"], said["version"], said["result"])
        if said["schema"] is not None:
            jsonschema.Draft202012Validator.check_schema(said["schema"])
            jsonschema.Draft202012Validator(said["schema"]).validate(said["result"]["structuredContent"])
    except Exception as error:
        faults.append(f"{said['version']} {said['method']} {said['name']}: {error}")
print(json.dumps(faults))
