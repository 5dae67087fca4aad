import { constants } from 'node:fs';
import { access, mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { ServerId } from '../../base/ids.ts';
import type { Role } from '../../wire/access.ts';
import { isSystemError, preconditionFailure } from '../terminal/failure.ts';
import { writeFileAtomically } from '../transfer/atomic-file.ts';

export const AUTHORITY_FOLDER = 'authority';

export interface CredentialHolders {
  /** With the names and addresses of each. */
  readonly servers: ReadonlyMap<ServerId, readonly string[]>;
  readonly clients: ReadonlyMap<string, Role>;
}

export const SECRET_MODE = 0o600;
export const PUBLIC_MODE = 0o644;

/** Checks before files are written. @throws CommandFailure if one exists and may not be replaced */
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
      `Cannot write "${path}": the file exists`,
      'choose another --dir, or replace it with --force',
    );
  }
}

/** Writes a file atomically, never with more permissions than `mode`. */
export async function writeAtomically(path: string, text: string, mode: number): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFileAtomically(path, mode, async (file) => {
    // Regardless of a narrower umask: other users have to read certificates.
    await file.chmod(mode);
    await file.writeFile(text);
  });
}
