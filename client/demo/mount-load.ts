import { type FileHandle, open } from 'node:fs/promises';
import { isSystemError } from '../terminal/failure.ts';
import { GapMeter } from './gap-meter.ts';
import { type Damage, Ledger, NO_DAMAGE } from './ledger.ts';
import { type Load, repeat } from './load.ts';
import { readThroughMount } from './mounted-file.ts';
import { decodeRecords, encodeRecord, RECORD_BYTES } from './records.ts';

const WRITER = 4;
const WRITE_PAUSE_MS = 10;
const READ_PAUSE_MS = 100;

/** Appends records through the mount as any program would, each acknowledged by `fdatasync`. */
export class MountLoad implements Load {
  readonly title = 'appends through the mount';
  readonly path = '/mounted';
  readonly meter = new GapMeter();
  readonly #mounted: string;
  readonly #ledger = new Ledger();
  #file: FileHandle | null = null;
  reads = 0;
  /** Its reads only add load: the contents are compared at the end. */
  readonly seen: Damage = NO_DAMAGE;

  constructor(mounted: string) {
    this.#mounted = mounted;
  }

  get acknowledged(): number {
    return this.#ledger.acknowledgedCount;
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([
      repeat(signal, WRITE_PAUSE_MS, () => this.#append()),
      repeat(signal, READ_PAUSE_MS, () => this.#read()),
    ]);
    await this.#close();
  }

  async #append(): Promise<void> {
    const number = this.#ledger.begin();
    try {
      this.#file ??= await open(this.#mounted, 'a');
      const { bytesWritten } = await this.#file.write(encodeRecord(WRITER, number));
      if (bytesWritten !== RECORD_BYTES) return this.#ledger.markUnknown(number);
      await this.#file.datasync();
      this.#ledger.acknowledge(number);
      this.meter.mark();
    } catch (error) {
      if (!isSystemError(error)) throw error;
      this.#ledger.markUnknown(number);
      await this.#close();
    }
  }

  async #read(): Promise<void> {
    try {
      await readThroughMount(this.#mounted, 0, RECORD_BYTES);
      this.reads++;
    } catch (error) {
      // Not there yet, or an outage that the mount reports.
      if (!isSystemError(error)) throw error;
    }
  }

  /** Closes the file; the next append opens it again. After a failure, an error here is expected. */
  async #close(): Promise<void> {
    const file = this.#file;
    this.#file = null;
    await file?.close().catch((error: unknown) => {
      if (!isSystemError(error)) throw error;
    });
  }

  compare(contents: Uint8Array): Damage {
    return this.#ledger.compare(decodeRecords(WRITER, contents), true);
  }
}
