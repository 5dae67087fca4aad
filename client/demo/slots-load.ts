import { ServiceError } from '../../base/errors.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import { GapMeter } from './gap-meter.ts';
import type { Damage } from './ledger.ts';
import { DamageLog, type Load, repeat } from './load.ts';
import { decodeRecord, encodeRecord, RECORD_BYTES } from './records.ts';

const WRITER = 2;
const SLOTS = 64;
const WRITE_PAUSE_MS = 15;
const READ_PAUSE_MS = 30;

interface Slot {
  /** The newest record that was acknowledged here; 0 for none. */
  acknowledged: number;
  /** The newest record that may be here. */
  tried: number;
}

/** Overwrites records in place. A read must return the newest one acknowledged before it began, or a newer one. */
export class SlotsLoad implements Load {
  readonly title = 'overwrites over HTTP';
  readonly path = '/slots';
  readonly meter = new GapMeter();
  readonly #file: FileHandle;
  readonly #reader: FileHandle;
  readonly #writePauseMs: number;
  readonly #readPauseMs: number;
  readonly #slots: Slot[] = Array.from({ length: SLOTS }, () => ({ acknowledged: 0, tried: 0 }));
  readonly #damage: DamageLog;
  #next = 1;
  acknowledged = 0;
  reads = 0;

  constructor(
    file: FileHandle,
    reader: FileHandle,
    say: (text: string) => void,
    { writeMs = WRITE_PAUSE_MS, readMs = READ_PAUSE_MS } = {},
  ) {
    this.#file = file;
    this.#reader = reader;
    this.#writePauseMs = writeMs;
    this.#readPauseMs = readMs;
    this.#damage = new DamageLog(say);
  }

  get seen(): Damage {
    return this.#damage.sum;
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([
      repeat(signal, this.#writePauseMs, () => this.#overwrite()),
      repeat(signal, this.#readPauseMs, () => this.#read()),
    ]);
  }

  async #overwrite(): Promise<void> {
    const number = this.#next++;
    const index = number % SLOTS;
    const slot = this.#slots[index] as Slot;
    slot.tried = number;
    try {
      await this.#file.write(index * RECORD_BYTES, encodeRecord(WRITER, number));
      slot.acknowledged = number;
      this.acknowledged++;
      this.meter.mark();
    } catch (error) {
      // It may be executed later, even after the slot's next record, so the slot is not checked any more.
      if (!(error instanceof ServiceError)) throw error;
      slot.acknowledged = Number.NEGATIVE_INFINITY;
    }
  }

  async #read(): Promise<void> {
    const index = Math.floor(systemWorld.random() * SLOTS);
    const slot = this.#slots[index] as Slot;
    const { acknowledged } = slot;
    try {
      const { bytes } = await this.#reader.read(index * RECORD_BYTES, RECORD_BYTES);
      this.reads++;
      this.#checkSlot(index, bytes, acknowledged, slot.tried);
    } catch (error) {
      // No answer in time is an outage, not damage.
      if (!(error instanceof ServiceError)) throw error;
    }
  }

  #checkSlot(index: number, bytes: Uint8Array, acknowledged: number, tried: number): boolean {
    if (acknowledged <= 0 && bytes.every((byte) => byte === 0)) return true;
    const found = decodeRecord(WRITER, bytes);
    if (found === null || found % SLOTS !== index || found > tried) {
      this.#damage.add('corrupt', `slot ${index} of ${this.path} holds ${found ?? 'something else'}`);
      return false;
    }
    if (found < acknowledged) {
      this.#damage.add(
        'lost',
        `slot ${index} of ${this.path} holds ${found} after ${acknowledged} was acknowledged`,
      );
      return false;
    }
    return true;
  }

  compare(contents: Uint8Array): Damage {
    const log = new DamageLog(() => {});
    for (const [index, slot] of this.#slots.entries()) {
      const bytes = contents.subarray(index * RECORD_BYTES, (index + 1) * RECORD_BYTES);
      const found = decodeRecord(WRITER, bytes);
      if (slot.acknowledged <= 0 && (found === null || found <= slot.tried)) continue;
      if (found === null || found > slot.tried) log.add('corrupt', '');
      else if (found < slot.acknowledged) log.add('lost', '');
    }
    return log.sum;
  }
}
