import { type Command, InvalidArgumentError } from 'commander';
import { isVolumeName } from '../../wire/access.ts';
import type { TrashedFile } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import { parseRemotePath, type RemotePath } from '../cluster/remote-path.ts';
import { describeFailure, notFoundFailure, preconditionFailure } from '../terminal/failure.ts';
import { printable, printJson, printLine, printTable } from '../terminal/output.ts';
import { formatBytes, formatTime } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { clusterCommand, wholeNumber } from './cluster-command.ts';

const PAGE_COUNT = 1_000;

interface RestoreOptions {
  readonly to?: string;
  readonly file?: number;
  readonly json?: true;
}

interface Restored {
  readonly file: number;
  readonly path: string;
}

export function addTrashCommands(program: Command): void {
  const trash = program.command('trash').description('list, restore and delete removed files');

  clusterCommand(trash, 'ls', 'list the removed files in the trash')
    .argument('<place>', 'VOLUME, or VOLUME:/path for files that were there or below', placeOf)
    .option('--json', 'print them as JSON')
    .run(async (client, call, asked: RemotePath, options: { readonly json?: true }) => {
      const place = await located(client, asked, call);
      const files: TrashedFile[] = [];
      for await (const file of filesBelow(client, place, call)) files.push(file);
      if (options.json) return printJson({ volume: place.volume, files });
      const rows = files.map((file) => [
        `${file.inode}`,
        formatBytes(file.sizeBytes),
        formatTime(file.removedNs),
        formatTime(file.keptUntilNs),
        printable(file.removedBy ?? '-'),
        printable(file.path),
      ]);
      const header = ['FILE', 'SIZE', 'REMOVED (UTC)', 'KEPT UNTIL', 'BY', 'PATH'];
      printTable(rows, header);
    });

  clusterCommand(trash, 'restore')
    .description('restore removed files, with the directories that they were in')
    .argument('<path>', 'VOLUME:/path of a file, or of a directory for all that was in it', placeOf)
    .option('--to <path>', 'another path of the volume')
    .option(
      '--file <number>',
      'inode number, if several files had the path',
      wholeNumber(1, Number.MAX_SAFE_INTEGER),
    )
    .option('--json', 'print what was restored as JSON')
    .run((client, call, place: RemotePath, options: RestoreOptions) => restore(client, place, options, call));

  clusterCommand(trash, 'empty', 'delete removed files permanently')
    .argument('<place>', 'VOLUME, or VOLUME:/path for files that were there or below', placeOf)
    .option('--json', 'print how many there were as JSON')
    .run(async (client, call, place: RemotePath, options: { readonly json?: true }) => {
      const { volume, path } = await located(client, place, call);
      await client.useVolume(volume, call);
      let removed = 0;
      for (let last = PAGE_COUNT; last === PAGE_COUNT; removed += last) {
        const wanted = { kind: 'trash-empty', volume, path, countMax: PAGE_COUNT } as const;
        last = (await client.command(wanted, call)).removed;
      }
      if (options.json) printJson({ removed });
      else printLine(removed === 1 ? 'Deleted 1 file permanently' : `Deleted ${removed} files permanently`);
    });
}

/** Restores files at or below a path; of several that had the same path, the one that was removed last. */
async function restore(
  client: ClusterClient,
  asked: RemotePath,
  { to, file: wanted, json }: RestoreOptions,
  call: CallOptions,
): Promise<void> {
  const place = await located(client, asked, call);
  const { volume, path } = place;
  const newest = new Map<string, TrashedFile>();
  for await (const file of filesBelow(client, place, call)) {
    if (wanted !== undefined && file.inode !== wanted) continue;
    const before = newest.get(file.path);
    if (before === undefined || BigInt(file.removedNs) > BigInt(before.removedNs))
      newest.set(file.path, file);
  }
  if (newest.size === 0) {
    throw notFoundFailure(
      `Cannot restore ${volume}:${path}: the trash has no such file`,
      `"leasehold trash ls ${volume}" lists what there is`,
    );
  }
  await client.useVolume(volume, call);
  const target = to === undefined ? null : await targetIn(client, volume, placeIn(asked.volume, to), call);
  const restored: Restored[] = [];
  const failures: string[] = [];
  for (const file of newest.values()) {
    const moved = target === null ? {} : { to: movedPath(file.path, path, target) };
    try {
      const command = { kind: 'trash-restore', volume, inode: file.inode, ...moved } as const;
      restored.push({ file: file.inode, path: (await client.command(command, call)).path });
    } catch (error) {
      // A single file fails as it is; of many, the others are restored all the same.
      if (newest.size === 1) throw error;
      failures.push(...describeFailure(error).lines.slice(0, 1));
    }
  }
  if (json) printJson({ volume, restored });
  else for (const { path: at } of restored) printLine(`Restored ${volume}:${printable(at)}`);
  if (failures.length === 0) return;
  throw preconditionFailure(
    `${failures.length} of ${newest.size} files were not restored:\n${failures.join('\n')}`,
    '--to restores them below another path',
  );
}

async function* filesBelow(
  client: ClusterClient,
  { volume, path }: RemotePath,
  call: CallOptions,
): AsyncGenerator<TrashedFile> {
  let after: { readonly path: string; readonly inode: number } | null = null;
  for (;;) {
    const page: { readonly files: readonly TrashedFile[]; readonly more: boolean } = await client.query(
      { kind: 'trash', volume, path, after, countMax: PAGE_COUNT },
      call,
    );
    yield* page.files;
    const last = page.files.at(-1);
    if (!page.more || last === undefined) return;
    after = { path: last.path, inode: last.inode };
  }
}

function movedPath(path: string, from: string, to: string): string {
  const rest = path === from ? '' : path.slice(from === '/' ? 0 : from.length);
  return to === '/' ? rest : `${to}${rest}`;
}

function placeIn(volume: string, text: string): RemotePath {
  return parseRemotePath(text.startsWith('/') ? `${volume}:${text}` : text);
}

async function targetIn(
  client: ClusterClient,
  volume: string,
  to: RemotePath,
  call: CallOptions,
): Promise<string> {
  const place = await located(client, to, call, 'name');
  if (place.volume === volume) return place.path;
  const text = `Cannot restore to ${to.volume}:${to.path}: a file is restored to its volume, ${volume}`;
  throw preconditionFailure(text);
}

function placeOf(text: string): RemotePath {
  if (text.includes(':')) return parseRemotePath(text);
  if (!isVolumeName(text)) throw new InvalidArgumentError('It is written VOLUME, or VOLUME:/path.');
  return { volume: text, path: '/', directory: true };
}
