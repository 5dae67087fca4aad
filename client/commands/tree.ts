import type { Command } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { INODE_FLAGS, type InodeFlag, parseInodeFlags } from '../../wire/inode-flags.ts';
import type { PathEnd } from '../../wire/junctions.ts';
import type { ClusterClient, Entry } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import { baseName, joinPath, parseRemotePath, type RemotePath } from '../cluster/remote-path.ts';
import { preconditionFailure, usageFailure } from '../terminal/failure.ts';
import { printable, printJson, printLine, printTable } from '../terminal/output.ts';
import { formatBytes, formatTime } from '../terminal/quantities.ts';
import { BoundedTransfers } from '../transfer/bounded-transfers.ts';
import { entityTag } from '../transfer/entity-tag.ts';
import { whoami } from '../transfer/whoami.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { clusterCommand } from './cluster-command.ts';
import { placeInto, resolveOrNull } from './transfer.ts';

const REMOVALS_IN_FLIGHT_MAX = 16;

interface FlagsOptions {
  readonly set?: string;
  readonly clear?: string;
  readonly json?: true;
}

interface RemoveOptions {
  readonly recursive?: true;
  readonly force?: true;
  readonly trash?: boolean;
}

const TYPE_LETTERS: Readonly<Record<Attributes['kind'], string>> = {
  file: '-',
  directory: 'd',
  symlink: 'l',
  fifo: 'p',
  socket: 's',
  character: 'c',
  block: 'b',
};

export function addTreeCommands(program: Command): void {
  clusterCommand(program, 'ls', 'list a directory')
    .argument('<path>', 'VOLUME:/path')
    .option('-l, --long', 'with mode, links, owner, size and time')
    .option('--json', 'print the entries as JSON')
    .run(withLocation('target', list));

  clusterCommand(program, 'stat', 'show the attributes of a file or directory')
    .argument('<path>', 'VOLUME:/path')
    .option('--json', 'print the attributes as JSON')
    .run(withLocation('target', show));

  clusterCommand(program, 'flags', 'show or change the flags that protect a file or directory from changes')
    .argument('<path>', 'VOLUME:/path')
    .option('--set <flags>', `flags to set, separated by commas: ${INODE_FLAGS.join(', ')}`)
    .option('--clear <flags>', 'flags to clear, separated by commas')
    .option('--json', 'print the flags as JSON')
    .run(withLocation('target', changeFlags));

  clusterCommand(program, 'mkdir', 'create a directory')
    .argument('<path>', 'VOLUME:/path')
    .option('-p, --parents', 'create missing parents; succeed if the directory exists')
    .run((client, call, path: string, options: { readonly parents?: true }) =>
      withLocation(options.parents ? 'target' : 'name', makeDirectory)(client, call, path, options),
    );

  clusterCommand(program, 'mv', 'rename or move within a volume')
    .argument('<from>', 'VOLUME:/path')
    .argument('<to>', 'VOLUME:/path; if it is a directory, the file goes into it')
    .option('--no-replace', 'fail if the target exists')
    .run((client, call, from: string, to: string, options: { replace: boolean }) =>
      move(client, parseRemotePath(from), parseRemotePath(to), options, call),
    );

  clusterCommand(program, 'rm', 'remove a file')
    .argument('<path>', 'VOLUME:/path')
    .option('-r, --recursive', 'remove a directory with all that is in it')
    .option('-f, --force', 'succeed if it does not exist')
    .option('--no-trash', 'delete permanently, also if the volume has a trash')
    .run(withLocation('name', removeAt));
}

function withLocation<Options>(
  end: PathEnd,
  act: (client: ClusterClient, path: RemotePath, options: Options, call: CallOptions) => Promise<void>,
) {
  return async (client: ClusterClient, call: CallOptions, path: string, options: Options) =>
    act(client, await located(client, parseRemotePath(path), call, end), options, call);
}

async function list(
  client: ClusterClient,
  { volume, path }: RemotePath,
  options: { long?: true; json?: true },
  call: CallOptions,
): Promise<void> {
  const attributes = await client.resolve(volume, path, call);
  const entries: AsyncIterable<Entry> | Entry[] =
    attributes.kind === 'directory' ? client.list(attributes, call) : [{ name: baseName(path), attributes }];
  if (options.json) {
    const all = [];
    for await (const entry of entries) all.push({ name: entry.name, ...entry.attributes });
    return printJson({ volume, path, entries: all });
  }
  if (!options.long) {
    for await (const entry of entries) {
      const slash = entry.attributes.kind === 'directory' ? '/' : '';
      printLine(printable(entry.name) + slash + attachedText(entry.attributes));
    }
    return;
  }
  const rows = [];
  for await (const entry of entries) rows.push(longRow(entry));
  printTable(rows);
}

function longRow({ name, attributes }: Entry): string[] {
  const target = attributes.kind === 'symlink' ? ` -> ${printable(attributes.target)}` : '';
  return [
    formatMode(attributes),
    `${attributes.links}`,
    `${attributes.uid}`,
    `${attributes.gid}`,
    `${attributes.sizeBytes}`,
    formatTime(attributes.modifiedNs),
    printable(name) + target + attachedText(attributes),
  ];
}

function attachedText({ junction }: Attributes): string {
  return junction === undefined ? '' : ` => ${junction.volume}:/`;
}

/** @returns kind and permissions as `ls -l` writes them: `drwxr-sr-x` */
export function formatMode({ kind, mode }: Pick<Attributes, 'kind' | 'mode'>): string {
  const triple = (bits: number, special: boolean, letter: string) =>
    (bits & 4 ? 'r' : '-') +
    (bits & 2 ? 'w' : '-') +
    (special ? (bits & 1 ? letter : letter.toUpperCase()) : bits & 1 ? 'x' : '-');
  return (
    TYPE_LETTERS[kind] +
    triple(mode >> 6, (mode & 0o4000) !== 0, 's') +
    triple(mode >> 3, (mode & 0o2000) !== 0, 's') +
    triple(mode, (mode & 0o1000) !== 0, 't')
  );
}

async function show(
  client: ClusterClient,
  { volume, path }: RemotePath,
  options: { json?: true },
  call: CallOptions,
): Promise<void> {
  const attributes = await client.resolve(volume, path, { ...call, follow: false });
  const etag = attributes.kind === 'file' ? entityTag(attributes) : null;
  if (options.json) return printJson({ path, ...attributes, etag });
  const rows = [
    ['path', `${volume}:${printable(path)}`],
    ['kind', attributes.kind],
    ['inode', `${attributes.inode}`],
    ['size', `${attributes.sizeBytes} (${formatBytes(attributes.sizeBytes)})`],
    ['mode', `${formatMode(attributes)} (${attributes.mode.toString(8).padStart(4, '0')})`],
    ['owner', `${attributes.uid}:${attributes.gid}`],
    ['links', `${attributes.links}`],
    ['modified', `${formatTime(attributes.modifiedNs)} UTC`],
    ['changed', `${formatTime(attributes.changedNs)} UTC`],
  ];
  if (attributes.flags !== undefined) rows.push(['flags', attributes.flags.join(', ')]);
  if (attributes.retainUntilNs !== undefined)
    rows.push(['retained', `until ${formatTime(attributes.retainUntilNs)} UTC`]);
  if (attributes.kind === 'symlink') rows.push(['target', printable(attributes.target)]);
  if (etag !== null) rows.push(['etag', etag], ['replicas', attributes.replicas.join(', ')]);
  printTable(rows);
}

async function changeFlags(
  client: ClusterClient,
  { volume, path }: RemotePath,
  options: FlagsOptions,
  call: CallOptions,
): Promise<void> {
  const [set, clear] = [flagsOf(options.set), flagsOf(options.clear)];
  let attributes = await client.resolve(volume, path, call);
  if (set.length > 0 || clear.length > 0) {
    const { inode } = attributes;
    await client.useVolume(volume, call);
    ({ attributes } = await client.command({ kind: 'set-flags', inode, set, clear }, call));
  }
  const { flags = [] } = attributes;
  if (options.json) return printJson({ volume, path, flags });
  printLine(flags.length === 0 ? 'none' : flags.join(','));
}

function flagsOf(text = ''): InodeFlag[] {
  return parseInodeFlags(text, (name) =>
    usageFailure(`There is no flag "${name}"`, `there are "${INODE_FLAGS.join('" and "')}"`),
  );
}

async function makeDirectory(
  client: ClusterClient,
  { volume, path }: RemotePath,
  options: { parents?: true },
  call: CallOptions,
): Promise<void> {
  const owner = { mode: 0o755, uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  await client.useVolume(volume, call);
  const make = (at: string) =>
    client.command({ kind: 'make-directory', place: { volume, path: at }, ...owner }, call);
  if (!options.parents) {
    await make(path);
    return;
  }
  let at = '/';
  for (const name of path.split('/').filter((segment) => segment !== '')) {
    at = joinPath(at, name);
    try {
      await make(at);
    } catch (error) {
      if (!(error instanceof ServiceError && error.code === 'exists')) throw error;
      const there = await client.resolve(volume, at, call);
      if (there.kind !== 'directory') throw error;
    }
  }
}

async function move(
  client: ClusterClient,
  from: RemotePath,
  to: RemotePath,
  options: { replace: boolean },
  call: CallOptions,
): Promise<void> {
  const { volume, path } = await located(client, from, call, 'name');
  const target = await placeInto(client, 'move', from, to, call);
  if (volume !== target.volume) {
    throw new ServiceError(
      'cross-volume',
      `Cannot move from ${volume} to ${target.volume}: a move stays within its volume`,
    );
  }
  await client.useVolume(volume, call);
  await client.command(
    {
      kind: 'rename',
      from: { volume, path },
      to: target,
      mode: options.replace ? 'replace' : 'no-replace',
      by: whoami(),
    },
    call,
  );
}

export async function removeAt(
  client: ClusterClient,
  { volume, path }: Pick<RemotePath, 'volume' | 'path'>,
  options: RemoveOptions,
  call: CallOptions,
): Promise<void> {
  if (path === '/') {
    throw usageFailure(
      `Cannot remove ${volume}:/: it is the root of the volume`,
      `"leasehold volume rm ${volume}" removes a volume`,
    );
  }
  const self = { ...call, follow: false, junction: 'self' } as const;
  const attributes = options.force
    ? await resolveOrNull(client, volume, path, self)
    : await client.resolve(volume, path, self);
  if (attributes === null) return;
  assertNotAttached(`${volume}:${path}`, attributes);
  await client.useVolume(volume, call);
  if (attributes.kind !== 'directory') {
    await client.command({ kind: 'unlink', place: { volume, path }, ...removalOf(options) }, call);
    return;
  }
  if (!options.recursive) {
    throw preconditionFailure(
      `Cannot remove ${volume}:${path}: it is a directory`,
      'use --recursive to remove it with all that is in it',
    );
  }
  await removeContents(client, `${volume}:${path}`, attributes.inode, removalOf(options), call);
  await client.command({ kind: 'remove-directory', place: { volume, path } }, call);
}

/** @throws CommandFailure at a directory at which a volume is attached: a removal ends there */
function assertNotAttached(path: string, { junction }: Attributes): void {
  if (junction === undefined) return;
  throw preconditionFailure(
    `Cannot remove ${printable(path)}: the volume ${junction.volume} is attached there`,
    `"leasehold volume detach ${printable(path)}" detaches it`,
  );
}

function removalOf({ trash = true }: RemoveOptions): { readonly by: string; readonly trash?: false } {
  return { by: whoami(), ...(trash ? {} : { trash }) };
}

async function removeContents(
  client: ClusterClient,
  path: string,
  directory: number,
  removal: ReturnType<typeof removalOf>,
  call: CallOptions,
): Promise<void> {
  const removals = new BoundedTransfers(REMOVALS_IN_FLIGHT_MAX);
  try {
    for await (const { name, attributes } of client.list({ inode: directory }, call)) {
      const place = { parent: directory, name };
      if (attributes.kind === 'directory') {
        const below = joinPath(path, name);
        assertNotAttached(below, attributes);
        await removeContents(client, below, attributes.inode, removal, call);
        await client.command({ kind: 'remove-directory', place }, call);
      } else {
        await removals.begin(async () => {
          await client.command({ kind: 'unlink', place, ...removal }, call);
        });
      }
    }
  } finally {
    await removals.end();
  }
}
