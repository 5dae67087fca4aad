import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';
import { LruMap } from '../../base/bounded-map.ts';
import { parseJsonObject } from '../../wire/json.ts';

/** Access to the contents of one file. The signature covers every field. */
export interface Capability {
  readonly file: number;
  readonly volume: string;
  readonly mode: 'read' | 'write';
  /** Name of the grant that may use it. */
  readonly to: string;
  /** Wall clock, in milliseconds since 1970. */
  readonly untilMs: number;
}

/** Validity. Clients renew after half of it. */
export const CAPABILITY_MS = 600_000;
/** Capabilities whose signature is cached as valid; checking one costs microseconds per request. */
const VERIFIED_MAX = 20_000;
const SIGNATURE_BYTES = 32;
const TEXT_CHARS_MAX = 1_024;

/** Signs and verifies capabilities. Each carries the file's volume, so that no server has to ask the catalog. */
export class Capabilities {
  readonly #keys: () => readonly KeyObject[];
  readonly #nowMs: () => number;
  readonly #verified = new LruMap<string, Capability>(VERIFIED_MAX);
  #keysOfVerified: readonly KeyObject[] = [];

  /** @param keys the first signs, all verify; another array once they change */
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

  /** Returns the capability; null if it is forged, malformed or expired. */
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

/** Decodes a capability. @returns null if it is malformed or not signed with these keys; its end is not checked */
function examine(text: string, keys: readonly KeyObject[]): Capability | null {
  if (text.length > TEXT_CHARS_MAX) return null;
  const [payload = '', signed = '', more] = text.split('.');
  const signature = Buffer.from(signed, 'base64url');
  if (more !== undefined || signature.length !== SIGNATURE_BYTES) return null;
  if (!keys.some((key) => timingSafeEqual(signatureOf(key, payload), signature))) return null;
  // A server of this cluster signed it, perhaps one of another release.
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
