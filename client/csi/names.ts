/** Names that an orchestrator gives, and those that volumes and snapshots of the cluster have for them. */
import { createHash } from 'node:crypto';
import { isTreeName, isVolumeName } from '../../wire/access.ts';
import { invalid } from './call-failure.ts';

/** Of the specification: for every text that has no other limit. */
const TEXT_BYTES_MAX = 128;
const PATH_BYTES_MAX = 4_096;
/** Banned from names by the specification: control characters other than tab, line feed and carriage return. */
const BANNED = /[^\P{Cc}\t\n\r]/u;
const HASHED = /^csi-[0-9a-f]{40}$/;

/**
 * The cluster's name for a name of the orchestrator, which may be any text: itself if possible, else a digest. Two
 * different names have different names in the cluster, so a name that looks like a digest gets one, too.
 */
export function clusterName(name: string): string {
  if (isVolumeName(name) && !HASHED.test(name)) return name;
  return `csi-${createHash('sha256').update(name).digest('hex').slice(0, 40)}`;
}

/** @throws CallFailure if a request has no valid name */
export function checkName(name: string, field: string): void {
  if (name === '') throw invalid(`The request has no ${field}`);
  if (Buffer.byteLength(name) > TEXT_BYTES_MAX)
    throw invalid(`The ${field} is longer than ${TEXT_BYTES_MAX} bytes`);
  if (BANNED.test(name)) throw invalid(`The ${field} has a control character`);
}

/** @throws CallFailure unless the path is absolute, without `..` */
export function checkPath(path: string, field: string): void {
  if (path === '') throw invalid(`The request has no ${field}`);
  if (Buffer.byteLength(path) > PATH_BYTES_MAX)
    throw invalid(`The ${field} is longer than ${PATH_BYTES_MAX} bytes`);
  if (!path.startsWith('/') || path.split('/').includes('..') || path.includes('\0'))
    throw invalid(`The ${field} "${path}" is not an absolute path without ".."`);
}

export interface SnapshotId {
  readonly volume: string;
  readonly name: string;
}

/** Parses `VOLUME@NAME`. @returns null if it is none, so there is no such snapshot */
export function parseSnapshotId(id: string): SnapshotId | null {
  const [volume = '', name] = id.split('@');
  return isTreeName(id) && name !== undefined ? { volume, name } : null;
}

export function snapshotIdText({ volume, name }: SnapshotId): string {
  return `${volume}@${name}`;
}
