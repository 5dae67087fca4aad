import { readlink, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { optionText, parseMountOptions } from '../mounts/mount-options.ts';
import {
  type CommandFailure,
  describeFailure,
  EXIT_USAGE,
  generalFailure,
  isSystemError,
  notFoundFailure,
  preconditionFailure,
  systemReason,
  usageExit,
  usageFailure,
} from '../terminal/failure.ts';
import { mountFromTexts } from './mount-request.ts';

/** Where mount(8) searches for a program `mount.TYPE`. */
export const HELPER_FOLDER = '/sbin';
export const HELPER_NAME = 'mount.leasehold';
export const HELPER_COMMAND = 'mount-helper';
/** By the type under which the kernel has a mount: mount(8) runs this to change one. */
const MOUNTED_HELPER_NAME = 'mount.fuse.leasehold';
const HELPER = fileURLToPath(new URL('../../bin/mount.leasehold.js', import.meta.url));

const MOUNT_EXIT_USAGE = 1;
const MOUNT_EXIT_FAILED = 32;

interface HelperOptions {
  readonly o: readonly string[];
  readonly s?: true;
  readonly f?: true;
  readonly v?: true;
}

/** The command behind `mount.leasehold`, with the arguments of "External helpers" in mount(8). */
export function addMountHelper(program: Command): void {
  program
    .command(HELPER_COMMAND, { hidden: true })
    .exitOverride(usageExit(MOUNT_EXIT_USAGE))
    .configureHelp({ commandUsage: (command) => `${HELPER_NAME} ${command.usage()}` })
    .description('what mount(8) calls for the type "leasehold"')
    .argument('<source>')
    .argument('<directory>')
    .option('-o <list>', 'options', (text: string, before: readonly string[]) => [...before, text], [])
    .option('-s', 'pass over unknown options')
    .option('-f', 'do everything but mount')
    .option('-n', 'nothing to do: there is no /etc/mtab')
    .option('-v', 'say what was done')
    .option('-N <namespace>', 'of mounts; mount(8) has entered it')
    .option('-t <type>', 'of the file system')
    .action(async (source: string, directory: string, options: HelperOptions, command: Command) => {
      try {
        if (options.f) return;
        await mountFromTexts(
          {
            source,
            directory,
            // As in fstab, so that "mount -a" knows that it is mounted.
            texts: [optionText('fsname', source), ...options.o],
            log: undefined,
            sloppy: options.s === true,
            say: ({ log }) => {
              if (options.v)
                process.stderr.write(`mount.leasehold: ${source} is mounted, its log is ${log}\n`);
            },
          },
          command,
        );
      } catch (error) {
        const { exit, lines } = describeFailure(error);
        for (const line of lines)
          process.stderr.write(`${line.replace(/^leasehold: /, 'mount.leasehold: ')}\n`);
        process.exitCode = exit === EXIT_USAGE ? MOUNT_EXIT_USAGE : MOUNT_EXIT_FAILED;
      }
    });
}

/**
 * Refuses arguments of fuse's own helper, which runs `leasehold SOURCE DIRECTORY -o OPTIONS` for the type
 * `fuse.leasehold` without a helper: they have options that the user has not given (`dev,suid`). @throws CommandFailure
 * that says what to do instead
 */
export function refuseCallOfFuse([source, directory, flag, list, ...more]: readonly string[]): void {
  const isOne =
    directory?.startsWith('/') === true && flag === '-o' && list !== undefined && more.length === 0;
  if (!isOne || source === 'mount') return;
  // It refuses "remount".
  parseMountOptions([list], true);
  throw usageFailure(
    `Cannot mount "${source}" by the type "fuse.leasehold"`,
    'run "leasehold mount --install-helper", then: mount -t leasehold VOLUME:/ DIR',
  );
}

/** Installs `mount.leasehold` in a folder, and the helper for changes of mounts, as links. @returns its path */
export async function installHelper(folder: string): Promise<string> {
  const path = await linkHelper(folder, HELPER_NAME);
  await linkHelper(folder, MOUNTED_HELPER_NAME);
  return path;
}

async function linkHelper(folder: string, name: string): Promise<string> {
  const path = join(folder, name);
  try {
    await symlink(HELPER, path);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    if (error.code !== 'EEXIST') throw notInstalled(path, folder, error);
    const target = await readlink(path).catch((notLink: unknown) => {
      if (isSystemError(notLink) && notLink.code === 'EINVAL') return null;
      throw notLink;
    });
    if (target !== HELPER) {
      throw preconditionFailure(
        `Cannot install "${path}": a different file exists there${target === null ? '' : `, a link to ${target}`}`,
        'remove it first',
      );
    }
  }
  return path;
}

/** @returns why a link was not made: the system's message names its target, which is not the problem */
function notInstalled(path: string, folder: string, error: NodeJS.ErrnoException): CommandFailure {
  if (error.code === 'ENOENT') {
    const make = `make it first: mkdir -p ${folder}; mount(8) looks in ${HELPER_FOLDER}`;
    return notFoundFailure(`Cannot install "${path}": there is no folder "${folder}"`, make);
  }
  const isRefused = error.code === 'EACCES' || error.code === 'EPERM';
  return generalFailure(
    `Cannot install "${path}": ${systemReason(error)}`,
    isRefused ? 'run it as root, or name a folder of your own' : '',
  );
}
