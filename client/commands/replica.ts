import type { Command } from 'commander';
import type { FileInfo } from '../../wire/http-api.ts';
import { classFits, classText } from '../../wire/placement-class.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { type FileClass, fileClassOf } from '../cluster/file-class.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { type CommandFailure, preconditionFailure, usageFailure } from '../terminal/failure.ts';
import { printJson, printLine, printTable } from '../terminal/output.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { clusterCommand, withClient } from './cluster-command.ts';

/** A move that takes longer than one call continues in the background; a repeated call waits for it. */
const MOVE_TIMEOUT_MS = 30 * 60_000;

interface JsonOption {
  readonly json?: true;
}

type ServerState = 'in' | 'draining' | 'out' | 'unknown';

export function addReplicaCommands(program: Command): void {
  const replica = program.command('replica').description("show and move a file's replicas");

  clusterCommand(replica, 'ls', 'show the replicas of a file, with role, state and version')
    .argument('<path>', 'VOLUME:/path')
    .option('--json', 'print it as JSON')
    .run(async (client, call, path: string, options: JsonOption) => {
      const info = await infoOf(client, path, call);
      const { servers } = await client.query({ kind: 'servers', counts: false }, call);
      const rows = info.replicas.map((one) => {
        const server = servers.find(({ id }) => id === one.server);
        return { ...one, zone: server?.zone ?? '', membership: server?.state ?? 'in' };
      });
      if (options.json) return printJson({ file: info.file, view: info.view, replicas: rows });
      printLine(`View ${info.view.number} of file ${info.file}`);
      const cells = rows.map((row) => [
        row.server,
        row.zone === '' ? '-' : row.zone,
        row.membership,
        row.role,
        row.state,
        `${row.version}`,
        row.reachable ? 'yes' : 'no',
      ]);
      const header = ['REPLICA', 'ZONE', 'SERVER IS', 'ROLE', 'STATE', 'VERSION', 'REACHABLE'];
      printTable(cells, header);
    });

  clusterCommand(replica, 'add', 'add a replica to a file')
    .argument('<path>', 'VOLUME:/path')
    .argument('<server>', 'id of the target server')
    .option('--json', 'print the new view as JSON')
    .action(async (path: string, server: string, options: JsonOption, command: Command) => {
      await change(command, path, options, (members) => {
        if (members.includes(server)) throw refusal(`Server ${server} holds ${path} already`);
        return [...members, server];
      });
    });

  clusterCommand(replica, 'rm', 'remove a replica of a file')
    .argument('<path>', 'VOLUME:/path')
    .argument('<server>', 'id of the server that holds it')
    .option('--json', 'print the new view as JSON')
    .action(async (path: string, server: string, options: JsonOption, command: Command) => {
      await change(command, path, options, (members) => {
        if (!members.includes(server)) throw refusal(`Server ${server} does not hold ${path}`);
        if (members.length === 1) throw refusal(`Server ${server} holds the only replica of ${path}`);
        return members.filter((member) => member !== server);
      });
    });

  clusterCommand(replica, 'move', 'move one replica of a file to another server')
    .argument('<path>', 'VOLUME:/path')
    .argument('<from>', 'id of the server that holds it')
    .argument('<to>', 'id of the target server')
    .option('--json', 'print the new view as JSON')
    .action(async (path: string, from: string, to: string, options: JsonOption, command: Command) => {
      await change(command, path, options, (members) => {
        if (!members.includes(from)) throw refusal(`Server ${from} does not hold ${path}`);
        if (members.includes(to)) throw refusal(`Server ${to} holds ${path} already`);
        return members.map((member) => (member === from ? to : member));
      });
    });
}

/**
 * Records the file's own number of replicas if it differs from that of its class, then changes the members: in the
 * other order the cluster would restore the class's number in between.
 */
async function change(
  command: Command,
  path: string,
  options: JsonOption,
  edit: (members: readonly string[]) => readonly string[],
): Promise<void> {
  await withClient(command, async (client, call) => {
    const info = await infoOf(client, path, call);
    const members = edit(info.view.members);
    const added = members.filter((member) => !info.view.members.includes(member));
    await client.useVolume(info.volume, call);
    const { attributes } = await client.query({ kind: 'attributes', inode: info.file }, call);
    const files = await fileClassOf(client, attributes, call);
    await assertTakeReplicas(client, added, files, call);
    const count = members.length === files.replicas ? null : members.length;
    await client.command({ kind: 'set-replicas', inode: info.file, count }, call);
    const view = await client.admin.changeMembers(info.file, members, {
      ...call,
      timeoutMs: MOVE_TIMEOUT_MS,
    });
    if (options.json) printJson(view);
    else printLine(`${path} is on ${view.members.join(', ')} now`);
  });
}

async function assertTakeReplicas(
  client: ClusterClient,
  servers: readonly string[],
  files: FileClass,
  call: CallOptions,
): Promise<void> {
  if (servers.length === 0) return;
  const { servers: known } = await client.query({ kind: 'servers', counts: false }, call);
  for (const server of servers) {
    const found = known.find(({ id }) => id === server);
    const state: ServerState = found?.state ?? 'unknown';
    // The cluster would move it back.
    if (found !== undefined && !classFits(files, found))
      throw refusal(
        `Cannot put a replica on server ${server}: this file is only on servers ${classText(files)}`,
        '"leasehold placement get" shows where that is set',
      );
    if (state === 'in') continue;
    const why = state === 'unknown' ? 'there is no such server' : `it is ${state}`;
    throw refusal(
      `Cannot put a replica on server ${server}: ${why}`,
      '"leasehold server ls" shows the servers',
    );
  }
}

async function infoOf(client: ClusterClient, path: string, call: CallOptions): Promise<FileInfo> {
  const place = parseRemotePath(path);
  const info = await client.info(place.volume, place.path, call);
  if (info.attributes.kind !== 'file') {
    throw usageFailure(`"${path}" is a ${info.attributes.kind}: only files have replicas`);
  }
  return info;
}

function refusal(message: string, hint = ''): CommandFailure {
  return preconditionFailure(message, hint);
}
