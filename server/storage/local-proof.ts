import { createHmac, timingSafeEqual } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import type { World } from '../../base/world.ts';
import { LOCAL_PROOF_FILE, LOCAL_PROOF_TEXT } from '../../wire/locations.ts';

/**
 * By what a client shows that it may read this server's data folder: a secret that is in it, with the permissions of what else is
 * there. Another one at each start, so that whoever proves it now has read the folder of the process that is asked.
 */
export class LocalProof {
  /** The data folder, as an absolute path. */
  readonly folder: string;
  readonly #expected: Buffer;

  private constructor(folder: string, secret: string) {
    this.folder = folder;
    this.#expected = createHmac('sha256', secret).update(LOCAL_PROOF_TEXT).digest();
  }

  /** Puts a new secret into the folder. @throws what the disk refuses it with */
  static make(world: World, folder: string): LocalProof {
    const secret = world.randomBytes(32).toString('hex');
    const name = path.join(folder, LOCAL_PROOF_FILE);
    // Never through what somebody else may have put there.
    fs.rmSync(name, { force: true });
    fs.writeFileSync(name, secret, { flag: 'wx', mode: 0o600 });
    return new LocalProof(path.resolve(folder), secret);
  }

  /** @param shown of a request: hexadecimal */
  isShown(shown: unknown): boolean {
    if (typeof shown !== 'string' || !/^[0-9a-f]{64}$/.test(shown)) return false;
    return timingSafeEqual(Buffer.from(shown, 'hex'), this.#expected);
  }
}
