import { closeSync, constants, fdatasyncSync, openSync, writeSync } from 'node:fs';
import { setTimeout as delay, setImmediate } from 'node:timers/promises';
import { unreachable } from '../../base/assert.ts';
import type { Load, LoadReport } from './load.ts';

const WRITE_BYTES = 8 * 2 ** 20;
const FILE_BYTES = 512 * 2 ** 20;
/** The largest alignment that direct writes may need for addresses and lengths. */
const ALIGNMENT_BYTES = 4096;
/** Addresses of buffers are multiples of this. */
const ADDRESS_STEP_BYTES = 16;
/** Long compared with a timer's error, short compared with a batch of leases. */
const PERIOD_MS = 10;

let ending = false;
let writtenBytes = 0;
let direct = false;
let begunMs = performance.now();
let begunCpu = process.cpuUsage();

/** The load begins after the start of the process. */
function begin(): void {
  begunMs = performance.now();
  begunCpu = process.cpuUsage();
  writtenBytes = 0;
  tell();
}

function tell(): void {
  const { user, system } = process.cpuUsage(begunCpu);
  const report: LoadReport = {
    writtenBytes,
    cpuMs: (user + system) / 1000,
    spanMs: performance.now() - begunMs,
    direct,
  };
  process.send?.(report);
}

async function writeDisk(path: string): Promise<void> {
  const file = openDirect(path) ?? {
    descriptor: openSync(path, 'w'),
    bytes: Buffer.alloc(WRITE_BYTES, 0xa5),
  };
  const write = (): void => {
    const place = writtenBytes % FILE_BYTES;
    writtenBytes += writeSync(file.descriptor, file.bytes, 0, WRITE_BYTES, place);
    fdatasyncSync(file.descriptor);
  };
  write();
  begin();
  while (!ending) {
    write();
    // Lets the message that ends the load arrive.
    await setImmediate();
  }
  closeSync(file.descriptor);
}

/**
 * Opens a file past the page cache, so that writes load the disk and hardly the CPU. JavaScript does not know the
 * address of a buffer: the offset that the system accepts is found by trying.
 *
 * @returns null if the file system or platform does not support such writes
 */
function openDirect(path: string): { readonly descriptor: number; readonly bytes: Buffer } | null {
  if (constants.O_DIRECT === undefined) return null;
  const memory = Buffer.alloc(WRITE_BYTES + ALIGNMENT_BYTES, 0xa5);
  let descriptor: number;
  try {
    descriptor = openSync(path, constants.O_DIRECT | constants.O_CREAT | constants.O_WRONLY, 0o600);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EINVAL') return null;
    throw error;
  }
  for (let start = 0; start < ALIGNMENT_BYTES; start += ADDRESS_STEP_BYTES) {
    const bytes = memory.subarray(start, start + WRITE_BYTES);
    try {
      writeSync(descriptor, bytes, 0, ALIGNMENT_BYTES, 0);
      direct = true;
      return { descriptor, bytes };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EINVAL') throw error;
    }
  }
  closeSync(descriptor);
  return null;
}

async function burnCpu(coreShare: number): Promise<void> {
  begin();
  while (!ending) {
    const { user, system } = process.cpuUsage(begunCpu);
    const dueMs = (performance.now() - begunMs + PERIOD_MS) * coreShare - (user + system) / 1000;
    const untilMs = performance.now() + Math.max(0, Math.min(PERIOD_MS, dueMs));
    while (performance.now() < untilMs);
    await delay(Math.max(1, PERIOD_MS * (1 - coreShare)));
  }
}

process.on('message', () => {
  ending = true;
});
process.on('disconnect', () => process.exit(0));
const load = JSON.parse(process.argv[2] ?? '') as Load;
switch (load.kind) {
  case 'disk':
    await writeDisk(load.path);
    break;
  case 'cpu':
    await burnCpu(load.coreShare);
    break;
  default:
    unreachable(load);
}
tell();
