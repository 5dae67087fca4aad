import { MalformedError } from './bytes.ts';

/**
 * @param what for the error: "A list of servers is"
 * @throws MalformedError if the bytes are not JSON
 */
export function jsonOf(bytes: Uint8Array, what: string): unknown {
  try {
    return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8'));
  } catch (cause) {
    throw new MalformedError(`${what} not JSON`, { cause });
  }
}

/** @returns the JSON object in `text`, or null: it may come from another program */
export function parseJsonObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
