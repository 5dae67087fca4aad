#!/usr/bin/env node
// mount(8) runs this as /sbin/mount.leasehold for the type "leasehold":
// mount.leasehold SOURCE DIRECTORY [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]

process.argv.splice(2, 0, 'mount-helper');
await import('./leasehold.js');
