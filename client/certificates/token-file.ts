import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import type { Grant } from '../../wire/access.ts';
import {
  formatTokenFile,
  type KnownToken,
  parseTokenFile,
  TOKEN_ID_BYTES,
  TOKEN_KEY_BYTES,
  TOKEN_SECRET_BYTES,
  type TokenFile,
  tokenText,
} from '../../wire/tokens.ts';
import { systemWorld } from '../../world/system-world.ts';
import { isSystemError, notFoundFailure, usageFailure } from '../terminal/failure.ts';
import { SECRET_MODE, writeAtomically } from './files.ts';

export const RELOAD_HINT = 'copy it to all servers, and have each reload it: kill -HUP PID';

export interface DrawnToken {
  /** The secret: shown or written once, and stored nowhere. */
  readonly text: string;
  readonly known: KnownToken;
}

/** Draws a token; the caller stores it. @param lifeMs null for one that is valid until it is revoked */
export function issueToken({ name, role, volumes }: Grant, lifeMs: number | null): DrawnToken {
  const id = systemWorld.randomBytes(TOKEN_ID_BYTES).toString('hex');
  const secret = systemWorld.randomBytes(TOKEN_SECRET_BYTES).toString('base64url');
  const nowMs = systemWorld.wallMs();
  const known: KnownToken = {
    ...{ id, name, role, volumes },
    hash: createHash('sha256').update(secret).digest('base64url'),
    createdAt: new Date(nowMs).toISOString(),
    expiresAt: lifeMs === null ? null : new Date(nowMs + lifeMs).toISOString(),
  };
  return { text: tokenText(id, secret), known };
}

export function drawKey(): string {
  return systemWorld.randomBytes(TOKEN_KEY_BYTES).toString('base64url');
}

export function emptyTokenFile(): TokenFile {
  return { keys: [drawKey()], tokens: [], revoked: [] };
}

/** @returns null if there is no such file @throws CommandFailure if it is no token file */
export async function readTokenFile(path: string): Promise<TokenFile | null> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (isSystemError(error) && error.code === 'ENOENT') return null;
    throw error;
  }
  try {
    return parseTokenFile(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw usageFailure(`Cannot read "${path}" as a token file: ${why}`);
  }
}

/** Readable by its owner alone: its keys sign capabilities. */
export function writeTokenFile(path: string, file: TokenFile): Promise<void> {
  return writeAtomically(path, formatTokenFile(file), SECRET_MODE);
}

export function tokensOption(command: Command): Command {
  return command.option('--tokens <file>', 'the token file', process.env.LEASEHOLD_TOKENS || 'tokens.json');
}

/** Reads the token file. @throws CommandFailure if there is no such file, or it is no token file */
export async function knownTokens(path: string): Promise<TokenFile> {
  const found = await readTokenFile(path);
  if (found !== null) return found;
  throw notFoundFailure(
    `There is no token file "${path}"`,
    'name it with --tokens; "leasehold token create" creates one',
  );
}
