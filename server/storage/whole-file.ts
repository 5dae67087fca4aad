import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { flushDirectory } from './file-ops.ts';

/** Replaces the file atomically and durably. @param unique suffix of the temporary file */
export function replaceFile(file: string, text: string, unique: string): void {
  const fresh = `${file}.${unique}`;
  try {
    const fd = openSync(fresh, 'w', 0o600);
    try {
      writeFileSync(fd, text);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(fresh, file);
  } catch (error) {
    rmSync(fresh, { force: true });
    throw error;
  }
  flushDirectory(dirname(file));
}
