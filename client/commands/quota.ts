import type { Command } from 'commander';
import type { Attributes, CommandOf, DirectoryQuota } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { usageFailure } from '../terminal/failure.ts';
import { printable, printJson, printLine, printTable } from '../terminal/output.ts';
import { formatBytes } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { clusterCommand } from './cluster-command.ts';
import { quota, quotaFiles, volumeName } from './volume.ts';

const PAGE = 500;
const HEADER = ['DIRECTORY', 'QUOTA', 'QUOTA OF FILES'];

interface SetOptions {
  readonly bytes?: number;
  readonly files?: number;
  readonly json?: true;
}

interface ShowOptions {
  readonly json?: true;
}

export function addQuotaCommands(program: Command): void {
  const group = program
    .command('quota')
    .description('quotas of directories, beside those of volumes ("leasehold volume set")');

  clusterCommand(group, 'set', 'limit what is in a directory; the first time, it must be empty')
    .argument('<path>', 'VOLUME:/directory')
    .option('--bytes <size>', 'maximum total size of all files in it; none: unlimited', quota)
    .option('--files <count>', 'maximum number of files and directories in it; none: unlimited', quotaFiles)
    .option('--json', 'print its quotas as JSON')
    .run(async (client, call, path: string, { bytes, files, json }: SetOptions) => {
      if (bytes === undefined && files === undefined)
        throw usageFailure('Nothing to set: give --bytes or --files');
      const limits = {
        ...(bytes === undefined ? {} : { quotaBytes: bytes }),
        ...(files === undefined ? {} : { quotaInodes: files }),
      };
      await show(client, await change(client, path, limits, call), json ? { json } : {}, call);
    });

  clusterCommand(group, 'get', 'show the quotas of directories that a path counts against')
    .argument('<path>', 'VOLUME:/path')
    .option('--json', 'print them as JSON')
    .run(async (client, call, path: string, options: ShowOptions) => {
      await show(client, await attributesAt(client, path, call), options, call);
    });

  clusterCommand(group, 'clear', 'end the quota of an empty directory')
    .argument('<path>', 'VOLUME:/directory')
    .run(async (client, call, path: string) => {
      await change(client, path, null, call);
      printLine(`${printable(path)} has no quota of its own`);
    });

  clusterCommand(group, 'ls', 'list the directories that have a quota')
    .argument('[volume]', 'of this volume; without it, of all', volumeName)
    .option('--json', 'print them as JSON')
    .run(async (client, call, volume: string | undefined, options: ShowOptions) => {
      const names =
        volume === undefined
          ? (await client.query({ kind: 'volumes' }, call)).volumes.map(({ name }) => name)
          : [volume];
      const quotas: DirectoryQuota[] = [];
      for (const name of names) quotas.push(...(await quotasOfVolume(client, name, call)));
      print(quotas, options);
    });
}

async function quotasOfVolume(
  client: ClusterClient,
  volume: string,
  call: CallOptions,
): Promise<DirectoryQuota[]> {
  await client.useVolume(volume, call);
  const quotas: DirectoryQuota[] = [];
  for (let after: number | null = 0; after !== null; ) {
    const page: { readonly quotas: readonly DirectoryQuota[]; readonly next: number | null } =
      await client.query({ kind: 'directory-quotas', volume, after, countMax: PAGE }, call);
    quotas.push(...page.quotas);
    after = page.next;
  }
  return quotas;
}

async function change(
  client: ClusterClient,
  path: string,
  limits: CommandOf<'set-quota'>['quota'],
  call: CallOptions,
): Promise<Attributes> {
  const attributes = await attributesAt(client, path, call);
  if (attributes.snapshot !== undefined)
    throw usageFailure(`${printable(path)} is in a snapshot: name the directory in the volume itself`);
  await client.command({ kind: 'set-quota', inode: attributes.inode, quota: limits }, call);
  return attributes;
}

async function show(
  client: ClusterClient,
  { inode }: Pick<Attributes, 'inode'>,
  options: ShowOptions,
  call: CallOptions,
): Promise<void> {
  const { quotas } = await client.query({ kind: 'quotas-of', inode }, call);
  print(quotas, options);
}

function print(quotas: readonly DirectoryQuota[], { json }: ShowOptions): void {
  if (json) {
    printJson({ quotas });
    return;
  }
  if (quotas.length === 0) {
    printLine('No quota of a directory');
    return;
  }
  const rows = quotas.map(({ volume, path, directory, quotaBytes, quotaInodes, namedBytes, namedInodes }) => [
    path === undefined
      ? `${volume}: directory ${directory}, removed; files in the trash`
      : `${volume}:${printable(path)}`,
    quotaBytes === 0 ? formatBytes(namedBytes) : `${formatBytes(namedBytes)} of ${formatBytes(quotaBytes)}`,
    quotaInodes === 0 ? `${namedInodes}` : `${namedInodes} of ${quotaInodes}`,
  ]);
  printTable(rows, HEADER);
}

async function attributesAt(client: ClusterClient, path: string, call: CallOptions): Promise<Attributes> {
  const place = await located(client, parseRemotePath(path), call);
  await client.useVolume(place.volume, call);
  const query = { kind: 'resolve', volume: place.volume, path: place.path, follow: true } as const;
  return (await client.query(query, call)).attributes;
}
