/** Parameters of a StorageClass, attributes of inline volumes, and sizes. */
import { isLabel, isZone, LABELS_MAX, ZONE_FORM, ZONES_MAX } from '../../wire/placement-class.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { parseDurationMs, parseSize } from '../terminal/quantities.ts';
import { CallFailure, invalid } from './call-failure.ts';
import type { CapacityRange, Texts } from './messages.ts';

/** Settings of a new volume, in a fixed order, so that equal settings have equal texts. */
export interface Settings {
  readonly replicas: number;
  readonly objectBytes: number;
  readonly policy: 'quorum' | 'all' | 'read-only';
  readonly ownCatalog: boolean;
  readonly quotaInodes: number;
  readonly trashMs: number;
  readonly labels: readonly string[];
  readonly zones: readonly string[];
  /** Whether replicas follow the topology that the orchestrator asks for; `required`: so does the access. */
  readonly topology: 'none' | 'preferred' | 'required';
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** The directory that is mounted, from the volume's root. */
  readonly subdir: string;
}

const DEFAULTS: Settings = {
  replicas: 3,
  objectBytes: 128 * 1024,
  policy: 'quorum',
  ownCatalog: false,
  quotaInodes: 0,
  trashMs: 0,
  labels: [],
  zones: [],
  topology: 'none',
  mode: 0o755,
  uid: 0,
  gid: 0,
  subdir: '/',
};

type Parse = (text: string) => Partial<Settings>;

const ID_MAX = 0xffff_fffe;

const PARAMETERS: Readonly<Record<string, Parse>> = {
  replicas: (text) => ({ replicas: whole(text, 1, 15) }),
  objectSize: (text) => ({ objectBytes: sizeOf(text, 4_096, 4 * 1024 * 1024) }),
  policy: (text) => ({ policy: oneOf(text, ['quorum', 'all', 'read-only']) }),
  ownCatalog: (text) => ({ ownCatalog: oneOf(text, ['true', 'false']) === 'true' }),
  quotaFiles: (text) => ({ quotaInodes: whole(text, 1, Number.MAX_SAFE_INTEGER) }),
  trash: (text) => ({ trashMs: durationOf(text) }),
  labels: (text) => ({ labels: listOf(text, isLabel, LABELS_MAX, 'a label has a-z, 0-9 and hyphens') }),
  zones: (text) => ({ zones: listOf(text, isZone, ZONES_MAX, `a zone ${ZONE_FORM}`) }),
  topology: (text) => ({ topology: oneOf(text, ['none', 'preferred', 'required']) }),
  mode: (text) => ({ mode: octal(text) }),
  uid: (text) => ({ uid: whole(text, 0, ID_MAX) }),
  gid: (text) => ({ gid: whole(text, 0, ID_MAX) }),
  subdir: (text) => ({ subdir: directoryOf(text) }),
};

/** Information that the orchestrator adds to parameters and attributes. */
const OF_ORCHESTRATOR = /^(?:csi\.storage\.k8s\.io|storage\.kubernetes\.io)\//;

/** @throws CallFailure `INVALID_ARGUMENT` that names the parameter and what is wrong with it */
export function settingsOf(parameters: Texts, kind = 'parameter'): Settings {
  let settings = DEFAULTS;
  for (const [name, text] of Object.entries(parameters)) {
    if (OF_ORCHESTRATOR.test(name)) continue;
    settings = { ...settings, ...parsed(name, text, kind) };
  }
  return settings;
}

function parsed(name: string, text: string, kind: string): Partial<Settings> {
  const parse = Object.hasOwn(PARAMETERS, name) ? PARAMETERS[name] : undefined;
  if (parse === undefined)
    throw invalid(`There is no ${kind} "${name}": known are ${Object.keys(PARAMETERS).join(', ')}`);
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    throw invalid(`Cannot use "${text}" as the ${kind} ${name}: ${error.message}`);
  }
}

/** @returns the settings as a text, equal for equal settings */
export function settingsText(settings: Settings): string {
  return JSON.stringify(settings);
}

export interface Capacity {
  /** 0: none. */
  readonly requiredBytes: number;
  readonly limitBytes: number;
}

/** @throws CallFailure `INVALID_ARGUMENT` for a malformed range, `OUT_OF_RANGE` for one without a possible size */
export function capacityOf(range: CapacityRange | null): Capacity {
  const [requiredBytes, limitBytes] = [range?.requiredBytes ?? '0', range?.limitBytes ?? '0'].map(Number);
  if (requiredBytes === undefined || limitBytes === undefined || requiredBytes < 0 || limitBytes < 0)
    throw invalid('A capacity is not negative');
  if (!Number.isSafeInteger(requiredBytes) || !Number.isSafeInteger(limitBytes))
    throw new CallFailure('OUT_OF_RANGE', `A capacity is at most ${Number.MAX_SAFE_INTEGER} bytes`);
  if (limitBytes > 0 && requiredBytes > limitBytes)
    throw new CallFailure(
      'OUT_OF_RANGE',
      `The required capacity, ${requiredBytes}, is larger than the limit, ${limitBytes}`,
    );
  return { requiredBytes, limitBytes };
}

/** @returns the quota of a new volume; 0 for none */
export function quotaOf({ requiredBytes, limitBytes }: Capacity): number {
  return requiredBytes > 0 ? requiredBytes : limitBytes;
}

/** @returns whether a volume of this capacity is what a request for the range wants; 0 is an unlimited one */
export function capacityFits(quotaBytes: number, { requiredBytes, limitBytes }: Capacity): boolean {
  const bytes = quotaBytes === 0 ? Number.POSITIVE_INFINITY : quotaBytes;
  return bytes >= requiredBytes && (limitBytes === 0 || bytes <= limitBytes);
}

/** Attributes of inline volumes that are not parameters of a volume. */
export function inlineCapacityOf(size: string | undefined): Capacity {
  if (size === undefined) return { requiredBytes: 0, limitBytes: 0 };
  const bytes = parseSize(size.replace(/^(\d+)([KMGT])i$/, '$1$2iB'));
  if (bytes === null || bytes <= 0)
    throw invalid(`Cannot use "${size}" as the attribute size: it is a size such as 1GiB`);
  return { requiredBytes: bytes, limitBytes: 0 };
}

/** @returns the directory in normal form @throws Error if it could lead out of the volume */
export function directoryOf(text: string): string {
  try {
    return parseRemotePath(`volume:${text.startsWith('/') ? text : `/${text}`}`).path;
  } catch (error) {
    throw new Error('it is a path in the volume, without ".."', { cause: error });
  }
}

function whole(text: string, low: number, high: number): number {
  const value = /^[0-9]{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= low && value <= high)) throw new Error(`it is a whole number from ${low} to ${high}`);
  return value;
}

function sizeOf(text: string, low: number, high: number): number {
  const bytes = parseSize(text);
  if (bytes === null || bytes < low || bytes > high) throw new Error(`it is a size from ${low} to ${high}`);
  return bytes;
}

function durationOf(text: string): number {
  const ms = text === '0' ? 0 : parseDurationMs(text);
  if (ms === null || ms < 0 || !Number.isInteger(ms)) throw new Error('it is 0, or a duration such as 30d');
  return ms;
}

function octal(text: string): number {
  if (!/^[0-7]{1,5}$/.test(text)) throw new Error('it is an octal number such as 0770');
  const mode = Number.parseInt(text, 8);
  if (mode > 0o7777) throw new Error('it is an octal number of at most 7777');
  return mode;
}

function oneOf<Value extends string>(text: string, values: readonly Value[]): Value {
  const value = values.find((one) => one === text);
  if (value === undefined) throw new Error(`it is one of ${values.join(', ')}`);
  return value;
}

function listOf(text: string, isOne: (word: string) => boolean, most: number, form: string): string[] {
  const words = [...new Set(text.split(',').map((word) => word.trim()))].sort();
  if (!words.every(isOne) || words.length > most) throw new Error(`${form}; at most ${most}, with commas`);
  return words;
}
