import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
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
import { CommandFailure, EXIT_USAGE, isSystemError } from '../failure.ts';
import { SECRET_MODE, writeWhole } from './files.ts';

/** A token as its holder gets it, and what servers keep of it. */
export interface DrawnToken {
  /** Whoever has it is let in: shown or written once, and kept nowhere. */
  readonly text: string;
  readonly known: KnownToken;
}

/** @param lifeMs null for a token that is good until it is revoked */
export function drawToken({ name, role, volumes }: Grant, lifeMs: number | null): DrawnToken {
  const id = randomBytes(TOKEN_ID_BYTES).toString('hex');
  const secret = randomBytes(TOKEN_SECRET_BYTES).toString('base64url');
  const nowMs = Date.now();
  const known: KnownToken = {
    ...{ id, name, role, volumes },
    hash: createHash('sha256').update(secret).digest('base64url'),
    createdAt: new Date(nowMs).toISOString(),
    expiresAt: lifeMs === null ? null : new Date(nowMs + lifeMs).toISOString(),
  };
  return { text: tokenText(id, secret), known };
}

/** @returns a key by which servers sign capabilities */
export function drawKey(): string {
  return randomBytes(TOKEN_KEY_BYTES).toString('base64url');
}

/** @returns a file of tokens that lets nobody in yet */
export function emptyTokenFile(): TokenFile {
  return { keys: [drawKey()], tokens: [] };
}

/**
 * @returns null where there is no such file
 * @throws CommandFailure where it is no file of tokens
 */
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
    throw new CommandFailure(EXIT_USAGE, `Cannot read "${path}" as a file of tokens: ${why}`);
  }
}

/** Only its owner reads it: its keys sign capabilities. */
export function writeTokenFile(path: string, file: TokenFile): Promise<void> {
  return writeWhole(path, formatTokenFile(file), SECRET_MODE);
}
