import { type Command, InvalidArgumentError, Option } from 'commander';
import { durationFormat } from '../../base/duration.ts';
import { ServiceError } from '../../base/errors.ts';
import { ROOT_CATALOG } from '../../base/ids.ts';
import { isVolumeName } from '../../wire/access.ts';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import { catalogOf } from '../../wire/catalog-of-volume.ts';
import type { Policy } from '../../wire/catalog-values.ts';
import type { VolumeCatalogStatus } from '../../wire/http-api.ts';
import { classText, isRestricted } from '../../wire/placement-class.ts';
import { attachedVolumes } from '../cluster/attached-volumes.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { parseRemotePath, type RemotePath } from '../cluster/remote-path.ts';
import { EXIT_DEGRADED, preconditionFailure, usageFailure } from '../terminal/failure.ts';
import { printable, printJson, printLine, printTable } from '../terminal/output.ts';
import { formatBytes } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { addCloneCommands, cloneText } from './clone.ts';
import { clusterCommand, duration, size, wholeNumber, withClient } from './cluster-command.ts';
import { LABELS, type PlacementOptions, placementOf, placementText, ZONES } from './placement-options.ts';
import { addOwnCatalogCommand, addSplitCommand } from './volume-move.ts';

const OBJECT_BYTES_MIN = 4096;
const RETENTION_MS_MAX = 36_525 * 86_400_000;
const OBJECT_BYTES_MAX = 4 * 1024 * 1024;

interface CreateOptions extends PlacementOptions {
  readonly replicas: number;
  readonly objectSize: number;
  readonly policy: Policy;
  readonly ownCatalog?: true;
  readonly at?: RemotePath;
  readonly force?: true;
  readonly ifNotExists?: true;
  readonly quota?: number;
  readonly quotaFiles?: number;
  readonly trash?: number;
  readonly json?: true;
}

interface SetOptions extends PlacementOptions {
  readonly replicas?: number;
  readonly policy?: Policy;
  readonly force?: true;
  readonly quota?: number;
  readonly quotaFiles?: number;
  readonly trash?: number;
  readonly json?: true;
}

const POLICIES: readonly Policy[] = ['quorum', 'all', 'read-only'];

function policyOption(): Option {
  return new Option(
    '--policy <policy>',
    'which replicas must have a change before it is acknowledged',
  ).choices(POLICIES);
}

export function addVolumeCommands(program: Command): void {
  const volume = program.command('volume').description('create, list and remove volumes');

  clusterCommand(volume, 'create', 'create a volume')
    .argument('<name>', 'name of the volume: a-z, 0-9, ".", "_", "-"', volumeName)
    .option('--replicas <count>', 'servers that hold each file', wholeNumber(1, 15), 3)
    .option('--object-size <size>', 'size of the pieces that files are stored in', objectSize, 128 * 1024)
    .addOption(policyOption().default('quorum'))
    .option('--own-catalog', 'a catalog for its names alone, with members and a primary of its own')
    .option(
      '--at <path>',
      'VOLUME:/path that does not exist yet: attach the volume there; needs --own-catalog',
      parseRemotePath,
    )
    .option('--force', 'allow fewer servers than replicas')
    .option('--quota <size>', 'maximum total size of all files', quota)
    .option('--quota-files <count>', 'maximum number of files and directories', quotaFiles)
    .option('--trash <duration>', 'how long removed files are kept, such as 30d; 0: not at all', retention)
    .option(...LABELS)
    .option(...ZONES)
    .option('--if-not-exists', 'succeed without a change if the volume exists')
    .option('--json', 'print the volume as JSON')
    .run(async (client, call, name: string, options: CreateOptions) => {
      const { at } = options;
      if (at !== undefined && !options.ownCatalog)
        throw usageFailure('Cannot use --at without --own-catalog: only such volumes can be attached');
      const { volume, created } = await createVolume(client, name, options, call).then(
        (made) => ({ volume: made, created: true }),
        async (error: unknown) => {
          // With --at, the same command completes an interrupted one.
          const mayExist = options.ifNotExists === true || at !== undefined;
          if (!mayExist || !(error instanceof ServiceError) || error.code !== 'exists') throw error;
          return { ...(await client.query({ kind: 'volume', name }, call)), created: false };
        },
      );
      if (created) assertHasTrash(volume, options.trash);
      const attached =
        at === undefined ? {} : { attached: (await client.admin.attach(name, at, call)).inode };
      if (options.json) return printJson({ ...volume, ...attached });
      if (!created) printLine(`There is a volume ${name} already`);
      else printLine(`Created the volume ${volume.name} with ${volume.replicas} replicas of each file`);
      if (at !== undefined) printLine(attachedLine(name, at));
    });

  clusterCommand(volume, 'set')
    .description(
      'change the quotas, the trash, the number of replicas, their servers, or the policy of new files of a volume',
    )
    .argument('<name>', 'name of the volume', volumeName)
    .option(
      '--replicas <count>',
      'replicas of each file; existing files are adapted in the background',
      wholeNumber(1, 15),
    )
    .addOption(policyOption())
    .option('--quota <size>', 'maximum total size of all files; none: unlimited', quota)
    .option('--quota-files <count>', 'maximum number of files and directories; none: unlimited', quotaFiles)
    .option('--trash <duration>', 'how long files removed from now on are kept; 0: not at all', retention)
    .option(...LABELS)
    .option(...ZONES)
    .option('--force', 'allow fewer servers than replicas')
    .option('--json', 'print the volume as JSON')
    .action(async (name: string, options: SetOptions, command: Command) => {
      const { json, quota: _bytes, quotaFiles: _files, trash: _ms, force, ...rest } = options;
      const changes = { ...rest, ...limitsOf(options) };
      if (Object.keys(changes).length === 0)
        throw usageFailure(
          'Nothing to change: give --replicas, --policy, --quota, --trash, --labels or --zones',
        );
      await withClient(command, async (client, call) => {
        await client.useVolume(name, call);
        const { volume } = await client.command(
          { kind: 'volume-set', name, ...changes, ...(force === undefined ? {} : { force }) },
          call,
        );
        assertHasTrash(volume, options.trash);
        if (json) return printJson(volume);
        printLine(`The volume ${name} has ${volume.replicas} replicas of each file, policy ${volume.policy}`);
        if (volume.quotaBytes > 0) printLine(`Quota: ${formatBytes(volume.quotaBytes)} in total`);
        if (volume.quotaInodes > 0) printLine(`Quota: ${volume.quotaInodes} files and directories`);
        if ((volume.trashMs ?? 0) > 0)
          printLine(`Removed files are kept for ${durationFormat(volume.trashMs)}`);
        if (isRestricted(volume)) printLine(`Its files are on servers ${classText(volume)}`);
        if (changes.replicas !== undefined || changes.labels !== undefined || changes.zones !== undefined)
          printLine('"leasehold server ls" shows the progress');
      });
    });

  clusterCommand(volume, 'attach', 'attach a volume with a catalog of its own at a path of another volume')
    .argument('<name>', 'name of the volume', volumeName)
    .argument('<path>', 'VOLUME:/path that does not exist yet', parseRemotePath)
    .run(async (client, call, name: string, at: RemotePath) => {
      await client.admin.attach(name, at, call);
      printLine(attachedLine(name, at));
    });

  clusterCommand(volume, 'detach', 'detach an attached volume; its files stay in it')
    .argument('<path>', 'VOLUME:/path at which it is attached, or its name')
    .run(async (client, call, text: string) => {
      if (isVolumeName(text)) await client.admin.detachVolume(text, call);
      else await client.admin.detach(parseRemotePath(text), call);
    });

  clusterCommand(volume, 'ls', 'list the volumes')
    .option('--json', 'print the volumes as JSON')
    .run(async (client, call, options: { readonly json?: true }) => {
      const { volumes, unavailable = [] } = await client.query({ kind: 'volumes' }, call);
      const [{ catalogs = [] }, attachedAt] = await Promise.all([
        client.status(call),
        attachments(client, volumes, call),
      ]);
      if (unavailable.length > 0) process.exitCode = EXIT_DEGRADED;
      if (options.json) {
        const shown = volumes.map((one) => {
          const path = attachedAt.get(one.name);
          return path === undefined ? one : { ...one, attachedAt: path };
        });
        return printJson({ volumes: shown, unavailable, catalogs });
      }
      const haveClones = volumes.some(({ clone }) => clone !== undefined);
      const rows = volumes.map((one) => [
        one.name,
        `${one.replicas}`,
        formatBytes(one.objectBytes),
        `${one.inodes}`,
        formatBytes(one.usedBytes),
        one.policy,
        one.quotaBytes === 0 ? '–' : `${formatBytes(one.namedBytes)} of ${formatBytes(one.quotaBytes)}`,
        one.quotaInodes === 0 ? '–' : `${one.namedInodes} of ${one.quotaInodes}`,
        trashText(one),
        placementText(one),
        rowText(
          one,
          catalogs.find(({ name }) => name === one.name),
        ),
        ...(attachedAt.size === 0 ? [] : [attachedAt.get(one.name) ?? '–']),
        ...(haveClones ? [cloneText(one)] : []),
      ]);
      printTable(rows, [
        ...HEADER,
        ...(attachedAt.size === 0 ? [] : ['ATTACHED AT']),
        ...(haveClones ? ['CLONE OF'] : []),
      ]);
      for (const name of unavailable) {
        const catalog = catalogText(catalogs.find((one) => one.name === name));
        printLine(`The volume ${name} is unavailable: its catalog does not answer (${catalog})`);
      }
    });

  addOwnCatalogCommand(volume, volumeName);
  addSplitCommand(volume, volumeName, parseRemotePath);
  addCloneCommands(volume, volumeName);

  clusterCommand(volume, 'rm', 'remove an empty volume')
    .argument('<name>', 'name of the volume', volumeName)
    .option(
      '--lost',
      'most servers of its own catalog are lost for good: remove the volume with all its files',
    )
    .run(async (client, call, name: string, { lost }: { readonly lost?: true }) => {
      await client.command({ kind: 'volume-remove', name, ...(lost ? { lost } : {}) }, call);
    });
}

const HEADER = [
  'NAME',
  'REPLICAS',
  'OBJECT SIZE',
  'INODES',
  'USED',
  'POLICY',
  'QUOTA',
  'QUOTA OF FILES',
  'TRASH',
  'SERVERS',
  'CATALOG',
];

async function createVolume(
  client: ClusterClient,
  name: string,
  options: CreateOptions,
  call: CallOptions,
): Promise<VolumeInfo> {
  const { replicas, objectSize: objectBytes, policy, force = false } = options;
  const settings = { replicas, objectBytes, policy, force, ...limitsOf(options), ...placementOf(options) };
  if (!options.ownCatalog)
    return (await client.command({ kind: 'volume-create', name, ...settings }, call)).volume;
  await client.command({ kind: 'catalog-create', name, ...settings }, call);
  return (await client.query({ kind: 'volume', name }, call)).volume;
}

function attachedLine(name: string, { volume, path }: RemotePath): string {
  return `Attached the volume ${name} at ${volume}:${printable(path)}`;
}

/** @returns where volumes are attached, by name */
async function attachments(
  client: ClusterClient,
  volumes: readonly VolumeInfo[],
  call: CallOptions,
): Promise<ReadonlyMap<string, string>> {
  const attached = await attachedVolumes(client, volumes, call);
  return new Map(
    attached.map(({ name, inode, at }) => [
      name,
      at === null ? `directory ${inode}` : `${at.volume}:${printable(at.path)}`,
    ]),
  );
}

function isOfRoot(volume: VolumeInfo): boolean {
  return catalogOf(volume) === ROOT_CATALOG;
}

function rowText(volume: VolumeInfo, catalog: VolumeCatalogStatus | undefined): string {
  if (!isOfRoot(volume)) return catalogText(catalog);
  return catalog?.moving === undefined ? 'root' : `root; moves to ${catalog.members.join(', ')}`;
}

function catalogText(catalog: VolumeCatalogStatus | undefined): string {
  if (catalog === undefined) return 'its own';
  const { members, primary, state } = catalog;
  return `${members.join(', ')}; primary ${primary ?? 'none'}${state === 'ready' ? '' : `; ${state}`}`;
}

function limitsOf({
  quota: quotaBytes,
  quotaFiles: quotaInodes,
  trash: trashMs,
}: Pick<SetOptions, 'quota' | 'quotaFiles' | 'trash'>) {
  return {
    ...(trashMs === undefined ? {} : { trashMs }),
    ...(quotaBytes === undefined ? {} : { quotaBytes }),
    ...(quotaInodes === undefined ? {} : { quotaInodes }),
  };
}

/** @returns the size of the trash, and how long it is kept; files stay in it if the trash is turned off */
function trashText({ trashMs = 0, trashedBytes, trashedInodes = 0 }: Partial<VolumeInfo>): string {
  if (trashMs === 0 && trashedInodes === 0) return '–';
  const kept = trashMs === 0 ? '' : ` for ${durationFormat(trashMs)}`;
  return `${formatBytes(trashedBytes ?? 0)}${kept}`;
}

/** @throws CommandFailure if the trash was not set: servers of an earlier release ignore the field */
function assertHasTrash({ name, trashMs }: Partial<VolumeInfo>, wanted: number | undefined): void {
  if (wanted === undefined || wanted === 0 || trashMs === wanted) return;
  throw preconditionFailure(
    `The volume ${name} has no trash: the primary of the catalog runs a release without it`,
    'upgrade all servers, then set it again',
  );
}

function retention(text: string): number {
  if (text === '0' || text === 'none') return 0;
  const ms = duration(text);
  if (Number.isInteger(ms) && ms <= RETENTION_MS_MAX) return ms;
  throw new InvalidArgumentError('It is 0, or a duration of at most a century, such as 30d.');
}

/** Parses a quota; 0 is refused: the catalog stores "no bound" as 0, which a user who writes 0 hardly means. */
export function quota(text: string): number {
  if (text === 'none') return 0;
  const bytes = size(text);
  if (bytes === 0) throw new InvalidArgumentError('A quota is at least a byte; "none" ends it.');
  return bytes;
}

export function quotaFiles(text: string): number {
  return text === 'none' ? 0 : wholeNumber(1, Number.MAX_SAFE_INTEGER)(text);
}

export function volumeName(text: string): string {
  if (!isVolumeName(text)) {
    throw new InvalidArgumentError(
      'A volume has 1 to 63 of a-z, 0-9, ".", "_" and "-", a letter or digit first.',
    );
  }
  return text;
}

function objectSize(text: string): number {
  const bytes = size(text);
  if (bytes < OBJECT_BYTES_MIN || bytes > OBJECT_BYTES_MAX) {
    throw new InvalidArgumentError('It must be from 4KiB to 4MiB.');
  }
  return bytes;
}
