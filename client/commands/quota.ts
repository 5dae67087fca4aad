import type { Command } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes, CommandOf, DirectoryQuota, QuotaWalkState } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { preconditionFailure, usageFailure } from '../terminal/failure.ts';
import { printable, printJson, printLine, printTable } from '../terminal/output.ts';
import { formatBytes } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { type AbortOptions, clusterCommand } from './cluster-command.ts';
import { quota, quotaFiles, volumeName } from './volume.ts';

const PAGE = 500;
const HEADER = ['DIRECTORY', 'QUOTA', 'QUOTA OF FILES'];

const POLL_MS = 300;
const NO_WAIT = ['--no-wait', 'do not wait until what is in the directory is counted'] as const;

interface WaitOptions {
  readonly wait: boolean;
}

interface SetOptions extends WaitOptions {
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

  clusterCommand(group, 'set', 'limit what is in a directory; the first time, waits until it is counted')
    .argument('<path>', 'VOLUME:/directory')
    .option('--bytes <size>', 'maximum total size of all files in it; none: unlimited', quota)
    .option('--files <count>', 'maximum number of files and directories in it; none: unlimited', quotaFiles)
    .option(...NO_WAIT)
    .option('--json', 'print its quotas as JSON')
    .run(async (client, call, path: string, { bytes, files, wait, json }: SetOptions) => {
      if (bytes === undefined && files === undefined)
        throw usageFailure('Nothing to set: give --bytes or --files');
      const limits = {
        ...(bytes === undefined ? {} : { quotaBytes: bytes }),
        ...(files === undefined ? {} : { quotaInodes: files }),
      };
      const directory = await change(client, path, limits, call);
      if (wait) await whenWalked(client, directory, path, call);
      await show(client, directory, json ? { json } : {}, call);
    });

  clusterCommand(group, 'get', 'show the quotas of directories that a path counts against')
    .argument('<path>', 'VOLUME:/path')
    .option('--json', 'print them as JSON')
    .run(async (client, call, path: string, options: ShowOptions) => {
      await show(client, await attributesAt(client, path, call), options, call);
    });

  clusterCommand(group, 'clear', 'end the quota of a directory, or its count')
    .argument('<path>', 'VOLUME:/directory')
    .option(...NO_WAIT)
    .run(async (client, call, path: string, { wait }: WaitOptions) => {
      const directory = await change(client, path, null, call);
      if (wait) await whenWalked(client, directory, path, call);
      printLine(
        `${printable(path)} has no quota of its own${wait ? '' : ', once what counts against it is counted'}`,
      );
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
  await client.command({ kind: 'set-quota', inode: attributes.inode, quota: limits, walks: true }, call);
  return attributes;
}

/**
 * Shows the progress until what is in the directory is counted, which continues if this command ends.
 * @throws CommandFailure if the quota is refused
 */
async function whenWalked(
  client: ClusterClient,
  { inode }: Attributes,
  path: string,
  call: AbortOptions,
): Promise<void> {
  for (let shown = ''; ; ) {
    const walk = await client.query({ kind: 'quota-walk', inode }, call).catch(noneIfUnknown);
    switch (walk.state) {
      case 'none':
        return;
      case 'refused':
        throw preconditionFailure(`${printable(path)} gets no quota: ${walk.why}`);
      default: {
        const { quotas } = await client.query({ kind: 'quotas-of', inode }, call);
        const counted = quotas.find(({ directory }) => directory === inode)?.namedInodes ?? 0;
        const text =
          walk.state === 'counting'
            ? `${counted} files and directories are counted`
            : `${counted} files and directories are left`;
        if (text !== shown) process.stderr.write(`${text}\n`);
        shown = text;
        await systemWorld.sleep(POLL_MS, call);
      }
    }
  }
}

/** Servers of an earlier release do not know the query: their quotas begin and end at directories without entries. */
function noneIfUnknown(error: unknown): QuotaWalkState {
  if (error instanceof ServiceError && error.code === 'bad-request') return { state: 'none' };
  throw error;
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
  const rows = quotas.map((one) => {
    const { volume, path, directory, namedBytes, namedInodes } = one;
    const { quotaBytes, quotaInodes } = one.counting ?? one;
    const state = stateText(one);
    return [
      path === undefined
        ? `${volume}: directory ${directory}, removed; files in the trash`
        : `${volume}:${printable(path)}`,
      quotaBytes === 0 ? formatBytes(namedBytes) : `${formatBytes(namedBytes)} of ${formatBytes(quotaBytes)}`,
      `${quotaInodes === 0 ? `${namedInodes}` : `${namedInodes} of ${quotaInodes}`}${state}`,
    ];
  });
  printTable(rows, HEADER);
}

function stateText({ counting, ending }: DirectoryQuota): string {
  if (counting !== undefined) return ', counting';
  return ending ? ', ending' : '';
}

async function attributesAt(client: ClusterClient, path: string, call: CallOptions): Promise<Attributes> {
  const place = await located(client, parseRemotePath(path), call);
  await client.useVolume(place.volume, call);
  const query = { kind: 'resolve', volume: place.volume, path: place.path, follow: true } as const;
  return (await client.query(query, call)).attributes;
}
