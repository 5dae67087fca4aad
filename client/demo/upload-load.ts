import { request } from '../../platform/undici.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { Damage } from './ledger.ts';
import { DamageLog, type Load, repeat } from './load.ts';
import { decodeRecords, encodeRecord, RECORD_BYTES } from './records.ts';

const WRITER = 3;
const RECORDS = 1200;
const WRITE_PAUSE_MS = 50;
const READ_PAUSE_MS = 50;
const ANSWER_TIMEOUT_MS = 20_000;

interface Current {
  readonly version: number;
  readonly etag: string;
}

/**
 * Replaces the file by whole versions with PUT, each on the condition that the last one is still there (`If-Match`): so
 * an upload whose answer was lost cannot undo a newer one later. GET, from all servers in turn, must return one whole
 * version, and none older than the last acknowledged one.
 */
export class UploadLoad implements Load {
  readonly title = 'uploads and downloads with REST';
  readonly path = '/versions';
  readonly #urls: readonly string[];
  readonly #place: string;
  readonly #damage: DamageLog;
  #requestCount = 0;
  #lastVersion = 0;
  #current: Current | null = null;
  #acknowledgedVersion = 0;
  acknowledged = 0;
  reads = 0;

  constructor(volume: string, urls: readonly string[], say: (text: string) => void) {
    this.#urls = urls;
    this.#place = `/v1/files/${volume}${this.path}`;
    this.#damage = new DamageLog(say);
  }

  get seen(): Damage {
    return this.#damage.sum;
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([
      repeat(signal, WRITE_PAUSE_MS, () => this.#put()),
      repeat(signal, READ_PAUSE_MS, () => this.#check()),
    ]);
  }

  async #put(): Promise<void> {
    const current = this.#current;
    const version = ++this.#lastVersion;
    const condition = current === null ? { 'if-none-match': '*' } : { 'if-match': current.etag };
    const answer = await send(this.#nextUrl() + this.#place, {
      method: 'PUT',
      headers: { 'content-type': 'application/octet-stream', ...condition },
      body: encodeVersion(version),
    });
    const etag = answer?.headers.etag;
    if (answer !== null && (answer.status === 201 || answer.status === 204) && typeof etag === 'string') {
      this.#current = { version, etag };
      this.#acknowledgedVersion = version;
      this.acknowledged++;
      return;
    }
    // No answer, or an earlier upload without an answer was executed: read the current version.
    const found = await this.#get();
    if (found !== null) this.#current = found;
  }

  async #check(): Promise<void> {
    const acknowledged = this.#acknowledgedVersion;
    const found = await this.#get();
    if (found !== null && found.version < acknowledged) {
      this.#damage.add(
        'lost',
        `${this.path} is version ${found.version} after ${acknowledged} was acknowledged`,
      );
    }
  }

  async #get(): Promise<Current | null> {
    const url = this.#nextUrl();
    const acknowledged = this.#acknowledgedVersion;
    const answer = await send(url + this.#place, { method: 'GET' });
    if (answer === null) return null;
    if (answer.status === 404 && acknowledged > 0)
      this.#damage.add('lost', `${this.path} is missing at ${url}`);
    const { etag } = answer.headers;
    if (answer.status !== 200 || typeof etag !== 'string') return null;
    this.reads++;
    const version = decodeVersion(answer.body);
    if (version !== null && version <= this.#lastVersion) return { version, etag };
    this.#damage.add('corrupt', `${this.path} at ${url} is no version that was written`);
    return null;
  }

  #nextUrl(): string {
    return this.#urls[this.#requestCount++ % this.#urls.length] as string;
  }

  compare(contents: Uint8Array): Damage {
    const log = new DamageLog(() => {});
    const version = decodeVersion(contents);
    if (version === null || version > this.#lastVersion) {
      if (this.#acknowledgedVersion > 0 || contents.length > 0) log.add('corrupt', '');
    } else if (version < this.#acknowledgedVersion) log.add('lost', '');
    return log.sum;
  }
}

function encodeVersion(version: number): Buffer {
  return Buffer.concat(Array.from({ length: RECORDS }, () => encodeRecord(WRITER, version)));
}

function decodeVersion(bytes: Uint8Array): number | null {
  if (bytes.length !== RECORDS * RECORD_BYTES) return null;
  const [first = null, ...others] = decodeRecords(WRITER, bytes);
  return others.every((number) => number === first) ? first : null;
}

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Uint8Array;
}

/** Sends one request. @returns null if the connection failed or broke: the outcome is then unknown */
async function send(
  url: string,
  options: { method: 'GET' | 'PUT'; headers?: Record<string, string>; body?: Buffer },
): Promise<Answer | null> {
  try {
    const answer = await request(url, { ...options, signal: systemWorld.timeout(ANSWER_TIMEOUT_MS) });
    return { status: answer.statusCode, headers: answer.headers, body: await answer.body.bytes() };
  } catch (error) {
    if (error instanceof Error && !(error instanceof TypeError)) return null;
    throw error;
  }
}
