import { parseJsonObject } from './json.ts';

/** Key-value pairs per lease. */
export const LEASE_KEYS_MAX = 32;
/** UTF-16 code units of an owner, and of a value. */
export const LEASE_OWNER_MAX = 255;
export const LEASE_VALUE_MAX = 1024;

const LEASE_NAME = /^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$/;
const LEASE_KEY = /^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,63}$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it is about
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

export const LEASE_NAME_FORM =
  '1 to 255 of A-Z, a-z, 0-9, ".", "_", ":", "/", "@" and "-", a letter or digit first';
export const LEASE_KEY_FORM =
  '1 to 64 of A-Z, a-z, 0-9, ".", "_", ":", "/", "@" and "-", a letter or digit first';
export const LEASE_OWNER_FORM = `1 to ${LEASE_OWNER_MAX} characters, none of them a control character`;

export function isLeaseName(text: string): boolean {
  return LEASE_NAME.test(text);
}

export function isLeaseKey(text: string): boolean {
  return LEASE_KEY.test(text);
}

export function isLeaseOwner(text: string): boolean {
  return text.length >= 1 && text.length <= LEASE_OWNER_MAX && !CONTROL.test(text);
}

export type LeaseKeys = Readonly<Record<string, string>>;

/** The holder's description of itself; stored with its lease, readable by all clients. */
export interface LeaseNote {
  readonly name: string;
  readonly owner: string;
  readonly ttlMs: number;
  readonly keys: LeaseKeys;
  /** Number of the holder's last numbered change of keys; absent: none. */
  readonly change?: number;
}

/** Equal notes give equal texts, whatever their keys' order. */
export function leaseNoteText(note: LeaseNote): string {
  const keys = Object.fromEntries(Object.entries(note.keys).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  const { name, owner, ttlMs, change } = note;
  return JSON.stringify({ name, owner, ttlMs, keys, change });
}

/** @returns the note; null for another form, such as one of a later release */
export function leaseNoteParse(text: string): LeaseNote | null {
  const note = parseJsonObject(text);
  if (note === null) return null;
  const { name, owner, ttlMs, keys, change } = note;
  if (typeof name !== 'string' || typeof owner !== 'string' || typeof ttlMs !== 'number') return null;
  if (typeof keys !== 'object' || keys === null || Array.isArray(keys)) return null;
  const pairs = Object.entries(keys);
  if (!pairs.every((pair): pair is [string, string] => typeof pair[1] === 'string')) return null;
  const numbered = typeof change === 'number' && Number.isSafeInteger(change) ? { change } : {};
  return { name, owner, ttlMs, keys: Object.fromEntries(pairs), ...numbered };
}
