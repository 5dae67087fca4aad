import { ServiceError } from '../../base/errors.ts';
import { request } from '../../platform/undici.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import { isSystemError } from '../terminal/failure.ts';
import { GapMeter } from './gap-meter.ts';
import { type Damage, Ledger } from './ledger.ts';
import { DamageLog, type Load, repeat } from './load.ts';
import { readThroughMount } from './mounted-file.ts';
import { decodeRecord, decodeRecords, encodeRecord, RECORD_BYTES } from './records.ts';

const WRITER = 1;
const WRITE_PAUSE_MS = 15;
const READ_PAUSE_MS = 40;
const READ_TIMEOUT_MS = 30_000;
/** A mount may answer from what it read up to a second ago; a difference that lasts longer is damage. */
const MOUNT_STALE_MS = 3_000;
const MOUNT_RETRY_MS = 100;

/** Appends records one by one; reads them back with REST from all servers in turn, and through the mount. */
export class JournalLoad implements Load {
  readonly title = 'appends over HTTP';
  readonly path = '/journal';
  readonly meter = new GapMeter();
  readonly #file: FileHandle;
  readonly #urls: readonly string[];
  readonly #volume: string;
  readonly #mounted: string | null;
  readonly #ledger = new Ledger();
  readonly #damage: DamageLog;
  readonly #records: { readonly number: number; readonly offset: number }[] = [];
  reads = 0;

  constructor(
    file: FileHandle,
    volume: string,
    urls: readonly string[],
    mounted: string | null,
    say: (text: string) => void,
  ) {
    this.#file = file;
    this.#volume = volume;
    this.#urls = urls;
    this.#mounted = mounted;
    this.#damage = new DamageLog(say);
  }

  get seen(): Damage {
    return this.#damage.sum;
  }

  get acknowledged(): number {
    return this.#ledger.acknowledgedCount;
  }

  async run(signal: AbortSignal): Promise<void> {
    const mounted = this.#mounted;
    await Promise.all([
      repeat(signal, WRITE_PAUSE_MS, () => this.#append()),
      repeat(signal, READ_PAUSE_MS, () => this.#readOverHttp()),
      mounted === null ? null : repeat(signal, READ_PAUSE_MS, () => this.#readMounted(mounted)),
    ]);
  }

  async #append(): Promise<void> {
    const number = this.#ledger.begin();
    try {
      const { offset } = await this.#file.write('append', encodeRecord(WRITER, number));
      this.#ledger.acknowledge(number);
      this.#records.push({ number, offset });
      this.meter.mark();
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      this.#ledger.markUnknown(number);
    }
  }

  async #readOverHttp(): Promise<void> {
    const record = this.#randomRecord();
    if (record === null) return;
    const url = this.#urls[this.reads++ % this.#urls.length];
    const { number, offset } = record;
    let bytes: Uint8Array;
    try {
      const answer = await request(`${url}/v1/files/${this.#volume}${this.path}`, {
        headers: { range: `bytes=${offset}-${offset + RECORD_BYTES - 1}` },
        signal: systemWorld.timeout(READ_TIMEOUT_MS),
      });
      bytes = await answer.body.bytes();
      if (answer.statusCode === 416 || answer.statusCode === 404) {
        return this.#damage.add('lost', `record ${number} of ${this.path} is missing at ${url}`);
      }
      // A server that cannot answer now is an outage, not damage.
      if (answer.statusCode !== 206) return;
    } catch (error) {
      // The server that was asked is the one that was killed.
      if (error instanceof Error && !(error instanceof TypeError)) return;
      throw error;
    }
    this.#checkRecord(bytes, number, url ?? '');
  }

  async #readMounted(path: string): Promise<void> {
    const record = this.#randomRecord();
    if (record === null) return;
    const { number, offset } = record;
    const deadlineMs = systemWorld.nowMs() + MOUNT_STALE_MS;
    for (;;) {
      const bytes = await readThroughMount(path, offset, RECORD_BYTES).catch((error: unknown) => {
        // The mount reports that it reaches no majority now: an outage, not damage.
        if (isSystemError(error)) return null;
        throw error;
      });
      this.reads++;
      if (bytes === null || decodeRecord(WRITER, bytes) === number) return;
      if (systemWorld.nowMs() > deadlineMs) return this.#checkRecord(bytes, number, 'the mount');
      await systemWorld.sleep(MOUNT_RETRY_MS);
    }
  }

  #checkRecord(bytes: Uint8Array, number: number, where: string): void {
    const found = decodeRecord(WRITER, bytes);
    if (found === number) return;
    if (bytes.length < RECORD_BYTES || bytes.every((byte) => byte === 0)) {
      this.#damage.add('lost', `record ${number} of ${this.path} is missing at ${where}`);
    } else {
      this.#damage.add(
        'corrupt',
        `in place of record ${number} of ${this.path} is ${found ?? 'something else'} at ${where}`,
      );
    }
  }

  #randomRecord(): { readonly number: number; readonly offset: number } | null {
    return this.#records[Math.floor(systemWorld.random() * this.#records.length)] ?? null;
  }

  compare(contents: Uint8Array): Damage {
    return this.#ledger.compare(decodeRecords(WRITER, contents), false);
  }
}
