import { resolve } from 'node:path';
import { editDistance } from '../../base/edit-distance.ts';
import { isTreeName } from '../../wire/access.ts';
import { isZone, ZONE_FORM } from '../../wire/placement-class.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { CommandFailure, usageFailure } from '../terminal/failure.ts';
import { formatDuration, parseDurationMs } from '../terminal/quantities.ts';
import type { AccessFiles } from '../transport/access.ts';

/** The options of a mount, as given with `-o` on the command line, in fstab, and to the process of the mount. */
export interface MountSettings {
  readonly servers: readonly string[];
  readonly access: AccessFiles;
  /** The source in the table of mounts; null: `leasehold:VOLUME`. */
  readonly source: string | null;
  readonly readOnly: boolean;
  readonly allowOther: boolean;
  readonly exec: boolean;
  readonly suid: boolean;
  readonly devices: boolean;
  readonly accessTimes: 'relatime' | 'strictatime' | 'noatime';
  readonly directoryAccessTimes: boolean;
  readonly uid: number | null;
  readonly gid: number | null;
  readonly fileMask: number | null;
  readonly directoryMask: number | null;
  /** The longest that a call waits for the cluster; null: derived from its lease. */
  readonly operationTimeoutMs: number | null;
  readonly xattrs: boolean;
  /** Whether `leasehold.*` attributes are in listings of attributes; `auto`: in those for `getfattr`. */
  readonly virtualXattrs: 'auto' | 'listed' | 'hidden';
  readonly logLevel: 'error' | 'warn' | 'info' | 'debug';
  /** `auto`: `leases` if the kernel drops single names on request, else `ttl:1s`. */
  readonly cache: CacheMode | { readonly kind: 'auto' };
  readonly flushBehind: boolean;
  readonly localReads: boolean;
  /** Servers of this zone answer reads where they can; null: any do. */
  readonly zone: string | null;
  readonly creationTimes: boolean;
  /** The minor device number of the mount; null: the kernel chooses one. */
  readonly deviceNumber: number | null;
  readonly transport: 'auto' | 'kernel' | 'native';
}

/** What a mount answers without a request: nothing, what is younger than `ageMs`, or what was not recalled. */
export type CacheMode =
  | { readonly kind: 'strict' }
  | { readonly kind: 'ttl'; readonly ageMs: number }
  | { readonly kind: 'leases' };

interface MountOption {
  readonly name: string;
  /** The form of the value in the documentation; null for an option without a value. */
  readonly valueForm: string | null;
  readonly flag: string | undefined;
  readonly effect: string;
  readonly set: SetOption;
}

/** @throws Error that says what is wrong with the value; the caller adds the option's name */
type SetOption = (value: string, before: MountSettings) => Partial<MountSettings>;

const OPERATION_TIMEOUT_MIN_MS = 100;
const CACHE_AGE_DEFAULT_MS = 1_000;
const SERVER_PORT = 7401;

const FLAGS: Readonly<Record<string, string>> = {
  servers: 'servers',
  op_timeout: 'op-timeout',
  noxattr: 'no-xattr',
  cache: 'cache',
  flush_behind: 'flush-behind',
  local_reads: 'local-reads',
  transport: 'transport',
  log_level: 'log-level',
};

function valued(name: string, value: string | null, effect: string, set: SetOption): MountOption {
  return { name, valueForm: value, flag: FLAGS[name], effect, set };
}

function valueless(name: string, effect: string, settings: Partial<MountSettings> = {}): MountOption {
  return valued(name, null, effect, () => settings);
}

function choiceOption<Value extends string>(
  name: string,
  values: readonly Value[],
  effect: string,
  set: (value: Value) => Partial<MountSettings>,
): MountOption {
  return valued(name, values.join('|'), effect, (text) => {
    const value = values.find((one) => one === text);
    if (value !== undefined) return set(value);
    throw new Error(`"${text}" is not ${values.join(', ').replace(/, ([^,]*)$/, ' or $1')}`);
  });
}

const ACCESS_OPTIONS = {
  ca: 'ca',
  tokenFile: 'token_file',
  clientCert: 'client_cert',
  clientKey: 'client_key',
  revoked: 'revoked',
} as const;

function accessFile(field: keyof typeof ACCESS_OPTIONS, effect: string): MountOption {
  // The process of the mount has another working directory.
  return valued(ACCESS_OPTIONS[field], 'FILE', effect, (file, { access }) => ({
    access: { ...access, [field]: resolve(file) },
  }));
}

function ignored(name: string, effect: string, value: string | null = null): MountOption {
  return valued(name, value, effect, () => ({}));
}

const RELATIME = { accessTimes: 'relatime' } as const;

const VIRTUAL_XATTRS = ['auto', 'listed', 'hidden'] as const;

/** All mount options. A new one is a line here and a field of `MountSettings`. */
export const MOUNT_OPTIONS: readonly MountOption[] = [
  valued(
    'servers',
    'URL;URL;…',
    'base URLs of the cluster; may be given several times',
    (text, { servers }) => ({ servers: [...servers, ...serverUrls(text)] }),
  ),
  accessFile('ca', 'trusted CA certificates'),
  accessFile('tokenFile', 'file with the access token'),
  accessFile('clientCert', 'client certificate, instead of a token'),
  accessFile('clientKey', 'key of the client certificate'),
  accessFile('revoked', 'certificates of servers that are no longer trusted'),
  valued(
    'op_timeout',
    'DURATION',
    'time limit of a call that waits for the cluster; then it fails with `ETIMEDOUT`',
    (text) => ({ operationTimeoutMs: timeoutOf(text) }),
  ),
  valueless('ro', 'nothing can be changed through this mount: `EROFS`', { readOnly: true }),
  valueless('rw', 'the default', { readOnly: false }),
  valueless('allow_other', 'all users may use the mount; always so where root mounts', { allowOther: true }),
  valued('uid', 'NUMBER', 'everything is shown as owned by this user', (text) => ({ uid: idOf(text) })),
  valued('gid', 'NUMBER', 'everything is shown as owned by this group', (text) => ({ gid: idOf(text) })),
  valued(
    'umask',
    'OCTAL',
    'permissions of files and directories are shown as 777 without these bits',
    (text) => ({ fileMask: maskOf(text), directoryMask: maskOf(text) }),
  ),
  valued('fmask', 'OCTAL', 'the same for everything except directories', (text) => ({
    fileMask: maskOf(text),
  })),
  valued('dmask', 'OCTAL', 'the same for directories', (text) => ({ directoryMask: maskOf(text) })),
  valueless('noexec', 'no program can be run from here', { exec: false }),
  valueless('exec', 'the default', { exec: true }),
  valueless('nosuid', 'the default: set-user-id and set-group-id bits give no rights', { suid: false }),
  valueless('suid', 'set-user-id and set-group-id bits give rights; root only', { suid: true }),
  valueless('nodev', 'the default: device files do not work', { devices: false }),
  valueless('dev', 'device files work; root only', { devices: true }),
  valueless(
    'relatime',
    'the default: a read updates the access time if it is older than the last change, or than a day',
    RELATIME,
  ),
  valueless('strictatime', 'every read updates the access time', { accessTimes: 'strictatime' }),
  valueless('noatime', 'reads do not update access times; programs can set them', { accessTimes: 'noatime' }),
  valueless('nodiratime', 'reads of directories do not update access times', { directoryAccessTimes: false }),
  valueless('diratime', 'the default', { directoryAccessTimes: true }),
  valueless('atime', 'as `relatime`', RELATIME),
  valueless('norelatime', 'as `relatime`, also in the kernel', RELATIME),
  valueless('nostrictatime', 'the same', RELATIME),
  valueless(
    'btime',
    '`statx` reports the creation time, at the cost of one call to the mount the first time that a program asks for it; needs `transport=kernel` and Linux 6.6',
    { creationTimes: true },
  ),
  valueless('noxattr', 'no extended attributes; writes of a few KiB become cheaper', { xattrs: false }),
  valued(
    'cache',
    'auto|strict|leases|ttl:DURATION',
    'which cached names and attributes are valid: none (`strict`), those that the cluster has not recalled (`leases`), or those younger than DURATION (`ttl`); `auto`, the default: `leases` with `transport=kernel` on Linux 6.2 or later, else `ttl:1s`',
    (text) => ({ cache: text === 'auto' ? { kind: text } : cacheMode(text) }),
  ),
  valueless('flush_behind', '`close` returns before the cluster has what was written; `fsync` does not', {
    flushBehind: true,
  }),
  choiceOption(
    'local_reads',
    ['auto', 'off'],
    '`auto`, the default: read contents directly from the disk of a server on the same machine if the mount may read its data folder; `off`: always request them from the server',
    (value) => ({ localReads: value === 'auto' }),
  ),
  valued(
    'zone',
    'ZONE',
    'servers of this zone are asked first for contents, and with `cache=ttl` for names; without it those of `LEASEHOLD_ZONE`, else any',
    (zone) => ({ zone: checkedZone(zone) }),
  ),
  choiceOption(
    'transport',
    ['auto', 'kernel', 'native'],
    'how the mount talks to the kernel: directly (`kernel`, root only) or with a library (`native`); `auto`, the default, is `kernel` if possible',
    (transport) => ({ transport }),
  ),
  choiceOption(
    'virtual_xattrs',
    VIRTUAL_XATTRS,
    'whether lists of attributes contain `leasehold.*`; `auto`, the default: only lists for `getfattr`',
    (virtualXattrs) => ({ virtualXattrs }),
  ),
  choiceOption('facts', VIRTUAL_XATTRS, 'deprecated: `virtual_xattrs`', (virtualXattrs) => ({
    virtualXattrs,
  })),
  valued(
    'device_number',
    'NUMBER',
    'the mount has the device number 0:NUMBER (`st_dev`) each time, as NFS servers need it; without it the kernel chooses one; needs `transport=kernel`',
    (text) => ({ deviceNumber: deviceNumberOf(text) }),
  ),
  valued('fsname', 'TEXT', 'what `df` and the table of mounts show as the source', (source) => ({ source })),
  choiceOption(
    'log_level',
    ['error', 'warn', 'info', 'debug'],
    'how much the mount writes to its log; `info` is the default',
    (logLevel) => ({ logLevel }),
  ),
  ignored('default_permissions', 'the kernel always checks permissions'),
  ignored('lazytime', 'access times are always written later'),
  ignored('nolazytime', 'the same'),
  ignored('async', 'the default of every mount'),
  ignored('defaults', 'placeholder in fstab'),
  ignored('_netdev', 'for the boot: wait for the network'),
  ignored('nofail', 'for the boot: continue without this mount'),
  ignored('auto', 'for `mount -a`'),
  ignored('noauto', 'for `mount -a`'),
  ignored('user', 'for mount(8): who may mount and unmount', '[NAME]'),
  ...['nouser', 'users', 'nousers', 'owner', 'noowner', 'group', 'nogroup'].map((name) =>
    ignored(name, 'the same'),
  ),
  ignored('comment', 'a comment', 'TEXT'),
  ignored('x-*', 'for systemd and others that read fstab', '[TEXT]'),
];

const DEFAULTS: MountSettings = {
  servers: [],
  access: {},
  source: null,
  readOnly: false,
  allowOther: false,
  exec: true,
  suid: false,
  devices: false,
  accessTimes: 'relatime',
  directoryAccessTimes: true,
  uid: null,
  gid: null,
  fileMask: null,
  directoryMask: null,
  operationTimeoutMs: null,
  xattrs: true,
  virtualXattrs: 'auto',
  logLevel: 'info',
  cache: { kind: 'auto' },
  flushBehind: false,
  localReads: true,
  zone: null,
  creationTimes: false,
  deviceNumber: null,
  transport: 'auto',
};

const BY_NAME = new Map(MOUNT_OPTIONS.map((option) => [option.name, option]));

/**
 * Parses the arguments of `-o`: options with commas between them. A backslash before a character, or double quotes
 * around some, make these part of a value. `sloppy` ignores unknown options, as `mount -s` does; not `remount`.
 * @throws CommandFailure of usage that names the option, and the nearest known one
 */
export function parseMountOptions(texts: readonly string[], sloppy = false): MountSettings {
  const options = texts.flatMap(splitOptions);
  // First: mount(8) repeats the options of a mount that it is to change, as the kernel has them.
  if (options.some(({ name }) => name === 'remount')) throw remountRefused();
  let settings = DEFAULTS;
  for (const { name, value } of options) {
    const option = BY_NAME.get(/^x-/i.test(name) ? 'x-*' : name);
    if (option !== undefined) settings = { ...settings, ...settingsOf(option, value, settings) };
    else if (!sloppy) throw unknownOption(name);
  }
  return settings;
}

function settingsOf(
  option: MountOption,
  value: string | null,
  before: MountSettings,
): Partial<MountSettings> {
  const { name, valueForm: form } = option;
  if (value === null && form !== null && !form.startsWith('['))
    throw refusal(name, `it needs a value, as in ${name}=${form}`);
  if (value !== null && form === null) throw refusal(name, 'it takes no value');
  try {
    return option.set(value ?? '', before);
  } catch (error) {
    if (!(error instanceof Error) || error instanceof CommandFailure) throw error;
    throw refusal(name, error.message);
  }
}

/** @returns the options in the form of the kernel and of fusermount3 */
export function kernelOptions(settings: MountSettings, isRoot: boolean): string[] {
  return [
    settings.readOnly ? 'ro' : 'rw',
    settings.suid ? 'suid' : 'nosuid',
    settings.devices ? 'dev' : 'nodev',
    // The kernel leaves access times to the mount; its table shows what the mount does.
    settings.accessTimes,
    ...(settings.directoryAccessTimes ? [] : ['nodiratime']),
    ...(settings.exec ? [] : ['noexec']),
    ...(settings.allowOther || isRoot ? ['allow_other'] : []),
  ];
}

export function optionText(name: string, value: string): string {
  return `${name}=${value.replaceAll(/[\\,"]/g, '\\$&')}`;
}

export function accessTexts(access: AccessFiles): string[] {
  return Object.entries(ACCESS_OPTIONS).flatMap(([field, name]) => {
    const file = access[field as keyof typeof ACCESS_OPTIONS];
    return file === undefined ? [] : [optionText(name, resolve(file))];
  });
}

/** @returns options given as options of a command (`--op-timeout 5s`), as texts for `parseMountOptions` */
export function flagOptions(values: Readonly<Record<string, unknown>>): string[] {
  return MOUNT_OPTIONS.flatMap(({ name, flag }) => {
    const value = flag === undefined ? undefined : values[flag];
    if (typeof value === 'string') return [optionText(name, value)];
    return value === true ? [name] : [];
  });
}

function checkedZone(text: string): string {
  if (isZone(text)) return text;
  throw new Error(`a zone ${ZONE_FORM}`);
}

function splitOptions(text: string): { readonly name: string; readonly value: string | null }[] {
  const found: { name: string; value: string | null }[] = [];
  let name = '';
  let value: string | null = null;
  let quoted = false;
  const take = (character: string): void => {
    if (value === null) name += character;
    else value += character;
  };
  const end = (): void => {
    if (name.trim() !== '' || value !== null) found.push({ name: name.trim(), value });
    name = '';
    value = null;
  };
  for (let index = 0; index < text.length; index++) {
    const character = text[index] as string;
    if (character === '\\' && index + 1 < text.length) take(text[++index] as string);
    else if (character === '"') quoted = !quoted;
    else if (character === ',' && !quoted) end();
    else if (character === '=' && value === null) value = '';
    else take(character);
  }
  end();
  return found;
}

/** @param expiresNames whether the kernel drops single names on request */
export function cacheModeOf(cache: MountSettings['cache'], expiresNames: boolean): CacheMode {
  if (cache.kind !== 'auto') return cache;
  return expiresNames ? { kind: 'leases' } : { kind: 'ttl', ageMs: CACHE_AGE_DEFAULT_MS };
}

function cacheMode(value: string): CacheMode {
  if (value === 'strict' || value === 'leases') return { kind: value };
  const duration = /^ttl:(.+)$/.exec(value)?.[1];
  if (duration === undefined) throw new Error(`"${value}" is not auto, strict, leases or ttl:DURATION`);
  const ageMs = withUnitMs(duration);
  if (ageMs === null) throw new Error(`"${duration}" is not a duration such as 1s or 500ms, as in ttl:1s`);
  return ageMs === 0 ? { kind: 'strict' } : { kind: 'ttl', ageMs };
}

function remountRefused(): CommandFailure {
  return usageFailure(
    'Cannot use the mount option "remount": mount(8) cannot change this mount',
    'use "leasehold remount ro DIR" or "leasehold remount rw DIR"; for other options unmount it, and mount it again',
  );
}

function unknownOption(name: string): CommandFailure {
  const near = nearestOption(name);
  const hint = near === null ? '"leasehold mount --help" names the options' : `did you mean "${near}"?`;
  return usageFailure(`Cannot use the mount option "${name}": there is no such option`, hint);
}

function refusal(name: string, why: string): CommandFailure {
  return usageFailure(`Cannot use the mount option "${name}": ${why}`);
}

function nearestOption(name: string): string | null {
  const wanted = name.toLowerCase().replaceAll('-', '_');
  let best: string | null = null;
  let bestDistance = Math.max(2, Math.floor(wanted.length / 2));
  for (const { name: known } of MOUNT_OPTIONS) {
    const distance = editDistance(wanted, known);
    if (distance < bestDistance) [best, bestDistance] = [known, distance];
  }
  return best;
}

/** @returns base URLs of a list; a bare host name gets `http://` and the default port */
export function serverUrls(text: string): string[] {
  return text
    .split(/[,;]/)
    .map((url) => url.trim())
    .filter((url) => url !== '')
    .map((url) => {
      if (/^[a-z]+:\/\//i.test(url)) return url;
      return /:[0-9]+$/.test(url) ? `http://${url}` : `http://${url}:${SERVER_PORT}`;
    });
}

interface MountSource {
  readonly volume: string;
  readonly path: string;
}

/** Parses what is to be mounted: `main`, `main:`, `main:/` or `main:/a/directory`. */
export function parseMountSource(text: string): MountSource {
  const volume = text.endsWith(':') ? text.slice(0, -1) : text;
  if (isTreeName(volume)) return { volume, path: '/' };
  if (!text.includes(':')) {
    throw usageFailure(
      `Cannot mount "${text}": VOLUME, VOLUME@SNAPSHOT or VOLUME:/directory is expected`,
      'a volume is 1 to 63 of a-z, 0-9, ".", "_" and "-", a letter or digit first',
    );
  }
  const { volume: sourceVolume, path } = parseRemotePath(text);
  return { volume: sourceVolume, path };
}

/** Parses a duration. A number without a unit is refused: few users mean milliseconds. @returns null if invalid */
function withUnitMs(text: string): number | null {
  const ms = parseDurationMs(text);
  return ms === 0 || /[a-z]$/.test(text.trim()) ? ms : null;
}

function timeoutOf(text: string): number {
  const ms = withUnitMs(text);
  if (ms === null || ms < OPERATION_TIMEOUT_MIN_MS) {
    throw new Error(
      `${text} is not a duration of ${formatDuration(OPERATION_TIMEOUT_MIN_MS)} or more, such as 20s`,
    );
  }
  return Math.round(ms);
}

function idOf(text: string): number {
  const id = /^[0-9]{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (!(id < 0xffff_ffff)) throw new Error(`"${text}" is not the number of a user or group`);
  return id;
}

function deviceNumberOf(text: string): number {
  const number = /^[0-9]{1,4}$/.test(text) ? Number(text) : 0;
  if (number === 0) throw new Error(`"${text}" is not a number from 1 to 9999`);
  return number;
}

function maskOf(text: string): number {
  if (!/^0?[0-7]{1,3}$/.test(text)) throw new Error(`"${text}" is not an octal number of up to 777`);
  return Number.parseInt(text, 8);
}
