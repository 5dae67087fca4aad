import { constants } from 'node:fs';
import { access, readdir, readFile, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { isSystemError, systemReason } from '../terminal/failure.ts';
import { formatBytes } from '../terminal/quantities.ts';
import { type Finding, failed, ok, warning } from './finding.ts';

const FREE_FRACTION_MIN = 0.05;

const TYPES: Readonly<Record<number, string>> = {
  61267: 'ext4',
  1481003842: 'xfs',
  2435016766: 'btrfs',
  801189825: 'zfs',
  2035054128: 'overlayfs',
  16914836: 'tmpfs',
  2240043254: 'ramfs',
  26985: 'nfs',
  4283649346: 'cifs',
  4266872130: 'smb2',
  1702057286: 'fuse',
};
const IN_MEMORY = ['tmpfs', 'ramfs'];
const REMOTE = ['nfs', 'cifs', 'smb2', 'fuse'];

/** The part of the folder's META file that is read here; see server/storage/FORMAT.md. */
interface Meta {
  readonly server?: unknown;
  readonly cluster?: unknown;
  readonly clean?: unknown;
  readonly failed?: unknown;
}

export async function examineDataFolder(folder: string): Promise<Finding[]> {
  const name = `data ${folder}`;
  try {
    await access(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return [
      failed(name, `it cannot be used: ${systemReason(error)}`, 'create it, owned by the user of the server'),
    ];
  }
  return [await examineSpace(folder, name), await examineType(folder, name), await examineMeta(folder, name)];
}

async function examineSpace(folder: string, name: string): Promise<Finding> {
  const { bsize, bavail, blocks } = await statfs(folder);
  const found = `${formatBytes(bsize * bavail)} of ${formatBytes(bsize * blocks)} are free`;
  return bavail >= blocks * FREE_FRACTION_MIN
    ? ok(name, found)
    : warning(name, found, 'free space: a server refuses writes before the disk is full');
}

async function examineType(folder: string, name: string): Promise<Finding> {
  const { type } = await statfs(folder);
  const known = TYPES[type] ?? `0x${type.toString(16)}`;
  if (IN_MEMORY.includes(known)) {
    return warning(name, `it is in memory (${known}): its data is lost in a power failure`, 'use a disk');
  }
  if (REMOTE.includes(known)) {
    return warning(
      name,
      `it is on another machine (${known})`,
      'use a disk of this machine: databases there need its locks',
    );
  }
  return ok(name, `the file system is ${known}`);
}

async function examineMeta(folder: string, name: string): Promise<Finding> {
  let meta: Meta;
  try {
    meta = JSON.parse(await readFile(join(folder, 'META'), 'utf8')) as Meta;
  } catch (error) {
    if (error instanceof SyntaxError)
      return failed(name, 'its META is damaged', 'start the server with --rebuild');
    if (!isSystemError(error)) throw error;
    if (error.code === 'EACCES') return warning(name, 'its META cannot be read by this user', 'try as root');
    if (error.code !== 'ENOENT') throw error;
    return (await readdir(folder)).length === 0
      ? ok(name, 'it is empty: a new server can start here')
      : failed(name, 'it is no data folder: META is missing', 'name an empty folder, or restore META');
  }
  const whose = `it belongs to server ${String(meta.server)} of the cluster ${String(meta.cluster)}`;
  if (meta.failed === true) {
    return warning(
      name,
      `${whose}; the disk failed during its last run`,
      'look at the disk and at the log of the server',
    );
  }
  if (meta.clean === true || (await isRunning(folder))) return ok(name, whose);
  return warning(name, `${whose}, and was not shut down cleanly`, 'start the server: it recovers by itself');
}

async function isRunning(folder: string): Promise<boolean> {
  const pid = (
    await readFile(join(folder, 'lock.pid'), 'utf8').catch((error: unknown) => {
      if (isSystemError(error)) return '';
      throw error;
    })
  ).trim();
  const command = /^[0-9]+/.exec(pid)?.[0];
  if (command === undefined) return false;
  return access(`/proc/${command}`).then(
    () => true,
    () => false,
  );
}
