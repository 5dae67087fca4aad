import { constants } from 'node:fs';
import { access, mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { ServerId } from '../../base/ids.ts';
import type { Role } from '../../wire/access.ts';
import { isSystemError, preconditionFailure } from '../failure.ts';
import { writeWholeFile } from '../whole-file.ts';

/** Folder of what no server and no client gets. */
export const AUTHORITY_FOLDER = 'authority';

/** Who is to have credentials. */
export interface CredentialHolders {
  /** With the names and addresses at which each is found. */
  readonly servers: ReadonlyMap<ServerId, readonly string[]>;
  /** By name. Each has all volumes. */
  readonly clients: ReadonlyMap<string, Role>;
}

/** Only its owner reads it. */
export const SECRET_MODE = 0o600;
export const PUBLIC_MODE = 0o644;

/** @throws CommandFailure where one of the files is there already and may not be replaced */
export async function refuseExisting(paths: readonly string[], force: boolean): Promise<void> {
  if (force) return;
  for (const path of paths) {
    try {
      await access(path, constants.F_OK);
    } catch (error) {
      if (isSystemError(error) && error.code === 'ENOENT') continue;
      throw error;
    }
    throw preconditionFailure(
      `Cannot write "${path}": it is there already`,
      'choose another --dir, or replace it with --force',
    );
  }
}

/** Writes a file that never has more readers than `mode` says; after a crash there is the old text or the new one. */
export async function writeWhole(path: string, text: string, mode: number): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeWholeFile(path, mode, async (file) => {
    // A narrower umask than ours is none of our business for what is public, but a certificate has to be read.
    await file.chmod(mode);
    await file.writeFile(text);
  });
}
