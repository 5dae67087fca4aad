import { escapedBytes, utf8Text } from '../../base/utf8.ts';

/**
 * The interchange format of POSIX.1-2001 (pax), as far as a file system needs it. Everything that may not fit into the
 * ustar header is in an extended header before it: long names, times in nanoseconds, large numbers, extended attributes
 * (named as by star and GNU tar). Values are bytes: an attribute may hold any.
 */
export const BLOCK_BYTES = 512;
export const PAX_BYTES_MAX = 64 * 1024 * 1024;

export type ArchiveKind = 'file' | 'link' | 'symlink' | 'character' | 'block' | 'directory' | 'fifo';

export interface ArchiveEntry {
  readonly kind: ArchiveKind;
  /** Relative to what was archived; without a slash at its end. */
  readonly path: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Decimal nanoseconds since 1970. */
  readonly modifiedNs: string;
  /** Path of a hard link's target, or text of a symbolic link; else empty. */
  readonly target: string;
  readonly device: number;
  readonly dataBytes: number;
  readonly xattrs: ReadonlyMap<string, Uint8Array>;
  /** Size of a sparse file, whose map precedes its data; null for other files. */
  readonly sparseBytes: number | null;
  /** Present if the member cannot be stored, for a reason of its own; `path` is then for people to read. */
  readonly why?: string;
}

const KINDS: readonly (readonly [ArchiveKind, string])[] = [
  ['file', '0'],
  ['link', '1'],
  ['symlink', '2'],
  ['character', '3'],
  ['block', '4'],
  ['directory', '5'],
  ['fifo', '6'],
];
const XATTR = 'SCHILY.xattr.';
/** Begins a key that is not UTF-8; no key of the format begins so. */
const NOT_UTF8 = '\0';
const PATH_BYTES = 100;
const SLASH = 0x2f;
const NS_DIGITS = 9;
const NS_PER_S = 10n ** BigInt(NS_DIGITS);

/** @returns the headers of a member; its data follows, padded to a block */
export function headersOf(entry: ArchiveEntry): Uint8Array {
  const sparse = entry.sparseBytes !== null;
  const path = sparse ? sparsePath(entry.path) : entry.kind === 'directory' ? `${entry.path}/` : entry.path;
  const records: Buffer[] = [
    record('path', path),
    record('uid', `${entry.uid}`),
    record('gid', `${entry.gid}`),
    record('mtime', decimalSeconds(entry.modifiedNs)),
    record('size', `${entry.dataBytes}`),
  ];
  if (entry.target !== '') records.push(record('linkpath', entry.target));
  if (entry.sparseBytes !== null) {
    records.push(
      record('GNU.sparse.major', '1'),
      record('GNU.sparse.minor', '0'),
      record('GNU.sparse.name', entry.path),
      record('GNU.sparse.realsize', `${entry.sparseBytes}`),
    );
  }
  for (const [name, value] of entry.xattrs) records.push(record(`${XATTR}${name}`, value));
  const extended = Buffer.concat(records);
  return Buffer.concat([
    header(
      { ...entry, path: 'PaxHeader', target: '', dataBytes: extended.length, device: 0, mode: 0o644 },
      'x',
    ),
    extended,
    Buffer.alloc(paddingOf(extended.length)),
    header({ ...entry, path }, kindFlag(entry.kind)),
  ]);
}

export function paddingOf(bytes: number): number {
  return (BLOCK_BYTES - (bytes % BLOCK_BYTES)) % BLOCK_BYTES;
}

export interface RawHeader {
  readonly flag: string;
  readonly dataBytes: number;
  readonly path: Buffer;
  readonly target: Buffer;
  readonly entry: Omit<ArchiveEntry, 'kind' | 'path' | 'target' | 'xattrs' | 'sparseBytes' | 'why'>;
}

/** Parses a header; null for a block of zeros, which ends an archive. @throws Error if the block is no header */
export function readHeader(block: Buffer): RawHeader | null {
  if (block.every((byte) => byte === 0)) return null;
  const sum = Number.parseInt(text(block, 148, 8), 8);
  if (sum !== checksum(block)) throw new Error('it is not a tar archive, or it is damaged');
  const prefix = text(block, 257, 5) === 'ustar' ? field(block, 345, 155) : Buffer.alloc(0);
  const name = field(block, 0, PATH_BYTES);
  const dataBytes = number(block, 124, 12);
  return {
    flag: String.fromCharCode(block[156] ?? 0),
    dataBytes,
    path: prefix.length === 0 ? name : Buffer.concat([prefix, Buffer.from('/'), name]),
    target: field(block, 157, 100),
    entry: {
      mode: number(block, 100, 8) & 0o7777,
      uid: number(block, 108, 8),
      gid: number(block, 116, 8),
      modifiedNs: (BigInt(number(block, 136, 12)) * NS_PER_S).toString(),
      device: deviceOf(number(block, 329, 8), number(block, 337, 8)),
      dataBytes,
    },
  };
}

/** @returns the values of an extended header; a key that is not UTF-8 is escaped @throws Error if it is damaged */
export function readRecords(bytes: Buffer): Map<string, Buffer> {
  const records = new Map<string, Buffer>();
  for (let at = 0; at < bytes.length; ) {
    const space = bytes.indexOf(0x20, at);
    const length = Number(bytes.subarray(at, space).toString('latin1'));
    const equals = bytes.indexOf(0x3d, space);
    const end = at + length;
    if (space === -1 || equals === -1 || !(length > 0) || equals >= end || bytes[end - 1] !== 0x0a)
      throw new Error('an extended header is damaged');
    const key = bytes.subarray(space + 1, equals);
    records.set(utf8Text(key) ?? `${NOT_UTF8}${escapedBytes(key)}`, bytes.subarray(equals + 1, end - 1));
    at = end;
  }
  return records;
}

/** @returns the member of a header and its extended header; null for an unknown kind */
export function entryOf(
  { flag, entry, ...raw }: RawHeader,
  records: ReadonlyMap<string, Buffer>,
): ArchiveEntry | null {
  const textOf = (name: string): string | undefined => records.get(name)?.toString('latin1');
  const kind = KINDS.find(([, one]) => one === flag || (one === '0' && (flag === '\0' || flag === '7')))?.[0];
  if (kind === undefined) return null;
  const pathBytes = records.get('GNU.sparse.name') ?? records.get('path') ?? raw.path;
  const targetBytes = records.get('linkpath') ?? raw.target;
  const path = utf8Text(pathBytes) ?? escapedBytes(pathBytes);
  const target = utf8Text(targetBytes);
  const why =
    utf8Text(pathBytes) === null
      ? 'its name is not UTF-8'
      : target === null
        ? 'the target of the link is not UTF-8'
        : [...records.keys()].some((key) => key.startsWith(`${NOT_UTF8}${XATTR}`))
          ? 'the name of one of its extended attributes is not UTF-8'
          : null;
  const sparse = textOf('GNU.sparse.realsize');
  const xattrs = new Map<string, Uint8Array>();
  for (const [name, value] of records)
    if (name.startsWith(XATTR)) xattrs.set(name.slice(XATTR.length), value);
  const mtime = textOf('mtime');
  return {
    ...entry,
    // Old archives mark directories only by a slash at the end. The header's own path may be one that was cut there.
    kind: kind === 'file' && path.endsWith('/') ? 'directory' : kind,
    path: path.replace(/\/+$/, ''),
    uid: Number(textOf('uid') ?? entry.uid),
    gid: Number(textOf('gid') ?? entry.gid),
    modifiedNs: mtime === undefined ? entry.modifiedNs : nanoseconds(mtime),
    target: target ?? '',
    dataBytes: Number(textOf('size') ?? entry.dataBytes),
    xattrs,
    sparseBytes: sparse === undefined ? null : Number(sparse),
    ...(why !== null && { why }),
  };
}

function kindFlag(kind: ArchiveKind): string {
  return KINDS.find(([one]) => one === kind)?.[1] ?? '0';
}

/** GNU tar's place for sparse files, so that other programs do not take the map for contents. */
function sparsePath(path: string): string {
  const slash = path.lastIndexOf('/');
  return `${path.slice(0, slash + 1)}GNUSparseFile.0/${path.slice(slash + 1)}`;
}

/** Makes a record of an extended header, `LENGTH KEY=VALUE\n`, where the length counts itself. */
function record(key: string, value: string | Uint8Array): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), Buffer.from(value), Buffer.from('\n')]);
  let length = rest.length;
  while (length !== rest.length + `${length}`.length) length = rest.length + `${length}`.length;
  return Buffer.concat([Buffer.from(`${length}`), rest]);
}

type HeaderFields = Pick<
  ArchiveEntry,
  'path' | 'mode' | 'uid' | 'gid' | 'modifiedNs' | 'target' | 'device' | 'dataBytes'
>;

/** Makes a ustar header. Values that do not fit are cut, or 0: the extended header has them and takes precedence. */
function header(fields: HeaderFields, flag: string): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, at: number, length: number): void => {
    const digits = value.toString(8);
    if (value >= 0 && digits.length < length) block.write(digits.padStart(length - 1, '0'), at, 'latin1');
    else block.write('0'.repeat(length - 1), at, 'latin1');
  };
  cutPath(fields.path).copy(block, 0);
  octal(fields.mode, 100, 8);
  octal(fields.uid, 108, 8);
  octal(fields.gid, 116, 8);
  octal(fields.dataBytes, 124, 12);
  octal(Math.max(0, Number(BigInt(fields.modifiedNs) / NS_PER_S)), 136, 12);
  block.write(flag, 156, 'latin1');
  Buffer.from(fields.target).copy(block, 157, 0, 100);
  block.write('ustar\x0000', 257, 'latin1');
  const [major, minor] = deviceNumbers(fields.device);
  octal(major, 329, 8);
  octal(minor, 337, 8);
  block.write(`${checksum(block).toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}

/** Fits a path into a header. Cut behind a slash, it would be a directory to readers without extended headers. */
function cutPath(path: string): Buffer {
  const bytes = Buffer.from(path);
  let end = Math.min(bytes.length, PATH_BYTES);
  while (end < bytes.length && bytes[end - 1] === SLASH) end--;
  return bytes.subarray(0, end);
}

function checksum(block: Buffer): number {
  let sum = 0;
  for (let at = 0; at < BLOCK_BYTES; at++) sum += at >= 148 && at < 156 ? 0x20 : (block[at] ?? 0);
  return sum;
}

function field(block: Buffer, at: number, length: number): Buffer {
  const bytes = block.subarray(at, at + length);
  const end = bytes.indexOf(0);
  return bytes.subarray(0, end === -1 ? length : end);
}

function text(block: Buffer, at: number, length: number): string {
  return field(block, at, length).toString('latin1');
}

/** Parses octal digits; or base 256 if the first bit is set, as GNU tar writes large numbers. */
function number(block: Buffer, at: number, length: number): number {
  if (((block[at] ?? 0) & 0x80) !== 0) return Number(block.readBigUInt64BE(at + length - 8));
  const value = Number.parseInt(text(block, at, length).trim() || '0', 8);
  if (Number.isNaN(value)) throw new Error('a number in a header is damaged');
  return value;
}

function decimalSeconds(ns: string): string {
  const value = BigInt(ns);
  const digits = (value < 0n ? -value : value).toString().padStart(NS_DIGITS + 1, '0');
  const fraction = digits.slice(-NS_DIGITS).replace(/0+$/, '');
  return `${value < 0n ? '-' : ''}${digits.slice(0, -NS_DIGITS)}${fraction === '' ? '' : `.${fraction}`}`;
}

function nanoseconds(seconds: string): string {
  const [, sign = '', whole = '0', fraction = ''] = /^(-?)([0-9]+)(?:\.([0-9]*))?$/.exec(seconds) ?? [];
  const value = BigInt(whole) * NS_PER_S + BigInt(fraction.padEnd(NS_DIGITS, '0').slice(0, NS_DIGITS));
  return (sign === '-' ? -value : value).toString();
}

/** Splits Linux's 64-bit device number, with 12 bits of the major and 8 of the minor number in their old places. */
function deviceNumbers(device: number): readonly [number, number] {
  const value = BigInt(device);
  const major = ((value >> 8n) & 0xfffn) | ((value >> 32n) & 0xfffff000n);
  const minor = (value & 0xffn) | ((value >> 12n) & 0xffffff00n);
  return [Number(major), Number(minor)];
}

function deviceOf(majorNumber: number, minorNumber: number): number {
  const [major, minor] = [BigInt(majorNumber), BigInt(minorNumber)];
  const value =
    ((major & 0xfffn) << 8n) |
    ((major & 0xfffff000n) << 32n) |
    (minor & 0xffn) |
    ((minor & 0xffffff00n) << 12n);
  return Number(value);
}
