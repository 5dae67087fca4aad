import { createHmac, timingSafeEqual } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import type { World } from '../../base/world.ts';
import { LOCAL_PROOF_FILE, LOCAL_PROOF_TEXT } from '../../wire/locations.ts';

/**
 * Proof that a client may read this server's data folder: a secret in it, with the permissions of the other files. It
 * is new at each start, so a proof means that the client has read the folder of this very process.
 */
export class LocalProof {
  readonly folder: string;
  readonly #expected: Buffer;

  private constructor(folder: string, secret: string) {
    this.folder = folder;
    this.#expected = createHmac('sha256', secret).update(LOCAL_PROOF_TEXT).digest();
  }

  static create(world: World, folder: string): LocalProof {
    const secret = world.randomBytes(32).toString('hex');
    const name = path.join(folder, LOCAL_PROOF_FILE);
    // Never through a link that another user may have put there.
    fs.rmSync(name, { force: true });
    fs.writeFileSync(name, secret, { flag: 'wx', mode: 0o600 });
    return new LocalProof(path.resolve(folder), secret);
  }

  isValid(shown: unknown): boolean {
    if (typeof shown !== 'string' || !/^[0-9a-f]{64}$/.test(shown)) return false;
    return timingSafeEqual(Buffer.from(shown, 'hex'), this.#expected);
  }
}
