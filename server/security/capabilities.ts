import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';
import { LruMap } from '../../base/bounded-map.ts';
import { parseJsonObject } from '../../wire/json.ts';

/** What a capability lets do with the contents of one file. All of it is under the signature. */
export interface Capability {
  readonly file: number;
  readonly volume: string;
  readonly mode: 'read' | 'write';
  /** Name of the grant to whose holder it was given: nobody else can use it. */
  readonly to: string;
  /** Wall clock, in milliseconds since 1970. */
  readonly untilMs: number;
}

/** Clients ask again when half of it is over. */
export const CAPABILITY_MS = 600_000;
/** Capabilities whose signature was found to be right lately: a signature costs some microseconds, each request. */
const VERIFIED_MAX = 20_000;
const SIGNATURE_BYTES = 32;
const TEXT_CHARS_MAX = 1_024;

/**
 * Signs and checks capabilities. The catalog says in which volume a file is; a capability carries that to whichever
 * server a client then asks for contents, so that none has to ask the catalog.
 */
export class Capabilities {
  readonly #keys: () => readonly KeyObject[];
  readonly #nowMs: () => number;
  readonly #verified = new LruMap<string, Capability>(VERIFIED_MAX);
  #keysOfVerified: readonly KeyObject[] = [];

  /**
   * @param keys the first signs, all are believed; another list where they have changed
   * @param nowMs wall clock, in milliseconds
   */
  constructor(keys: () => readonly KeyObject[], nowMs: () => number) {
    this.#keys = keys;
    this.#nowMs = nowMs;
  }

  issue(wanted: Omit<Capability, 'untilMs'>): string {
    const { file, volume, mode, to } = wanted;
    const [key] = this.#keys();
    if (key === undefined) throw new Error('There is no key to sign with');
    const fields = JSON.stringify([file, volume, mode, to, this.#nowMs() + CAPABILITY_MS]);
    const payload = Buffer.from(fields).toString('base64url');
    return `${payload}.${signatureOf(key, payload).toString('base64url')}`;
  }

  /** @returns what `text` allows now; null where it is forged, malformed or has ended */
  verify(text: string): Capability | null {
    const keys = this.#keys();
    if (keys !== this.#keysOfVerified) {
      this.#verified.clear();
      this.#keysOfVerified = keys;
    }
    const known = this.#verified.get(text);
    const capability = known ?? examine(text, keys);
    if (capability === null || capability.untilMs <= this.#nowMs()) return null;
    if (known === undefined) this.#verified.set(text, capability);
    return capability;
  }
}

function examine(text: string, keys: readonly KeyObject[]): Capability | null {
  if (text.length > TEXT_CHARS_MAX) return null;
  const [payload = '', signed = '', more] = text.split('.');
  const signature = Buffer.from(signed, 'base64url');
  if (more !== undefined || signature.length !== SIGNATURE_BYTES) return null;
  if (!keys.some((key) => timingSafeEqual(signatureOf(key, payload), signature))) return null;
  // Signed by one of us, so it is what one of us wrote; of another release, perhaps.
  const fields = parseJsonObject(`{"fields":${Buffer.from(payload, 'base64url').toString()}}`)?.fields;
  if (!Array.isArray(fields) || fields.length !== 5) return null;
  const [file, volume, mode, to, untilMs] = fields as readonly unknown[];
  if (typeof file !== 'number' || typeof volume !== 'string' || typeof to !== 'string') return null;
  if ((mode !== 'read' && mode !== 'write') || typeof untilMs !== 'number') return null;
  return { file, volume, mode, to, untilMs };
}

function signatureOf(key: KeyObject, payload: string): Buffer {
  return createHmac('sha256', key).update('leasehold capability ').update(payload).digest();
}
