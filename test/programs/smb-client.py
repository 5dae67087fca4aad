"""An SMB client in this process, by impacket, that locks ranges: smb-client.py PORT USER PASSWORD SHARE

Reads calls as JSON, one a line: ["lock", "file", 0, 10]. Answers each with {"value": ...} or {"errno": "STATUS_..."}.
"""
import json
import re
import sys

from impacket import smb3, smbconnection
from impacket import smb3structs as smb

port, user, password, share = sys.argv[1:]
connection = smbconnection.SMBConnection('127.0.0.1', '127.0.0.1', sess_port=int(port))
connection.login(user, password)
tree = connection.connectTree(share)
server = connection.getSMBServer()
files = {}


def open_file(name):
    access = smb.FILE_READ_DATA | smb.FILE_WRITE_DATA
    sharing = smb.FILE_SHARE_READ | smb.FILE_SHARE_WRITE | smb.FILE_SHARE_DELETE
    files[name] = connection.openFile(tree, name, desiredAccess=access, shareMode=sharing)


def change_lock(name, start, length, flags):
    # impacket's own method joins the parts as text.
    element = smb.SMB2_LOCK_ELEMENT()
    element['Offset'], element['Length'], element['Flags'] = start, length, flags
    body = smb.SMB2Lock()
    body['FileID'], body['LockCount'], body['LockSequence'] = files[name], 1, 0
    body['Locks'] = element.getData()
    packet = server.SMB_PACKET()
    packet['Command'], packet['TreeID'], packet['Data'] = smb.SMB2_LOCK, tree, body
    server.recvSMB(server.sendSMB(packet)).isValidAnswer(0)


CALLS = {
    'open': open_file,
    'lock': lambda name, start, length: change_lock(
        name, start, length, smb.SMB2_LOCKFLAG_EXCLUSIVE_LOCK | smb.SMB2_LOCKFLAG_FAIL_IMMEDIATELY),
    'unlock': lambda name, start, length: change_lock(name, start, length, smb.SMB2_LOCKFLAG_UNLOCK),
    'read': lambda name, start, length: connection.readFile(tree, files[name], start, length).decode(),
    'write': lambda name, start, text: connection.writeFile(tree, files[name], text.encode(), start),
    'close': lambda name: connection.closeFile(tree, files.pop(name)),
}
for line in sys.stdin:
    call, *arguments = json.loads(line)
    try:
        answer = {'value': CALLS[call](*arguments)}
    except (smb3.SessionError, smbconnection.SessionError) as error:
        answer = {'errno': re.search('STATUS_[A-Z_]+', str(error)).group(), 'reason': str(error)}
    print(json.dumps(answer), flush=True)
