import { fileURLToPath } from 'node:url';

/** Names the launcher with which tests start servers, mounts and commands. */
export const LAUNCHER_VARIABLE = 'TEST_LAUNCHER';

/** The launcher of this tree: Node reads the TypeScript sources. */
export const SOURCE_LAUNCHER = fileURLToPath(new URL('../bin/leasehold.js', import.meta.url));

/** `test/main.ts` names the launcher of a built tree, which starts in two thirds of the time. */
export const LAUNCHER = process.env[LAUNCHER_VARIABLE] ?? SOURCE_LAUNCHER;

/** @returns the launcher for a process with this environment: a planted bug is in the sources alone */
export function launcherOf(env: NodeJS.ProcessEnv): string {
  return env[LAUNCHER_VARIABLE] ?? LAUNCHER;
}
