import { Argument, type Command, Option } from 'commander';
import {
  flagOptions,
  MOUNT_OPTIONS,
  optionText,
  parseMountOptions,
  parseMountSource,
} from '../mounts/mount-options.ts';
import type { Mounted } from '../mounts/mount-process.ts';
import { type MountStatus, mountStatuses } from '../mounts/mount-status.ts';
import { remountDirectory } from '../mounts/remount.ts';
import { unmountDirectory } from '../mounts/unmount.ts';
import { generalFailure, usageFailure } from '../terminal/failure.ts';
import { printJson, printLine } from '../terminal/output.ts';
import { clusterCommand, duration } from './cluster-command.ts';
import { addMountHelper, HELPER_FOLDER, installHelper } from './mount-helper.ts';
import { mountFromTexts } from './mount-request.ts';

interface MountCommandOptions {
  readonly option: readonly string[];
  readonly log?: string;
  readonly foreground?: true;
  readonly installHelper?: true | string;
  readonly json?: true;
}

const OPTIONS_HELP = `
Options of -o:
${MOUNT_OPTIONS.map(({ name, valueForm, effect }) => `  ${optionTerm(name, valueForm).padEnd(32)} ${effect}`).join('\n')}`;

export function addMountCommands(program: Command): void {
  const mount = clusterCommand(program, 'mount')
    .description('mount a volume or a directory of one; returns when the mount is usable')
    .argument('[source]', 'VOLUME or VOLUME:/directory; "status" without a directory lists the mounts here')
    .argument('[directory]', 'where to mount it; a mount left dead there by a crash is replaced')
    .option('-o, --option <list>', 'options as in fstab, with commas between them; listed below', collect, [])
    .option(
      '--log <file>',
      'where the process of the mount writes its log (default: a new file in /run/leasehold or $XDG_RUNTIME_DIR, removed when the mount ends well)',
    )
    .option('--foreground', 'stay until the mount is gone; the log goes to standard error unless --log')
    .option(
      '--install-helper [folder]',
      'instead of mounting, let mount(8) and fstab find this program (default folder: /sbin)',
    )
    .option('--json', 'print directory, process and log as JSON')
    .addHelpText('after', OPTIONS_HELP)
    .action(
      async (source: string | undefined, directory: string | undefined, _: unknown, command: Command) => {
        const options = command.opts<MountCommandOptions>();
        if (options.installHelper !== undefined) {
          const folder = options.installHelper === true ? HELPER_FOLDER : options.installHelper;
          printLine(`Installed ${await installHelper(folder)}; use: mount -t leasehold VOLUME:/ DIR`);
          return;
        }
        if (source === 'status' && directory === undefined) {
          printMounts(await mountStatuses(), options.json === true);
          return;
        }
        if (source === undefined || directory === undefined) {
          throw usageFailure(
            'Cannot mount: a volume and a directory are needed',
            '"leasehold mount --help" shows the usage',
          );
        }
        const say = (mounted: Mounted): void => {
          if (options.json) printJson({ ...parseMountSource(source), ...mounted });
          else {
            const log = mounted.log === null ? '' : `, its log is ${mounted.log}`;
            printLine(`${source} is mounted on ${mounted.directory}; process ${mounted.pid}${log}`);
          }
        };
        const texts = [...options.option, ...flagsOf(command)];
        const { foreground = false, log } = options;
        await mountFromTexts({ source, directory, texts, log, foreground, say }, command);
      },
    );
  for (const option of tableFlags()) mount.addOption(option);

  addMountHelper(program);
  addRemountCommand(program);

  program
    .command('umount')
    .description('remove a mount; returns when all that was written there is stored')
    .argument('<directory>', 'where it is mounted')
    .option('--lazy', 'detach it even if it is in use; open files stay usable')
    .option('--force', 'same as --lazy')
    .option('--wait <duration>', 'how long to wait until everything is stored (default: 60s)', duration)
    .action(async (directory: string, options: { lazy?: true; force?: true; wait?: number }) => {
      if (process.platform !== 'linux') throw generalFailure('Cannot unmount: this works on Linux only');
      const message = await unmountDirectory(directory, {
        lazy: options.lazy === true || options.force === true,
        ...(options.wait === undefined ? {} : { timeoutMs: options.wait }),
      });
      if (message !== null) process.stderr.write(`leasehold: ${message}\n`);
    });
}

function addRemountCommand(program: Command): void {
  program
    .command('remount')
    .description('make a mount read-only, once all that was written there is stored, or read-write again')
    .addArgument(new Argument('<mode>', 'read-only or read-write').choices(['ro', 'rw']))
    .argument('<directory>', 'where it is mounted')
    .option('--force', 'also if files are open for writing; their writes then fail')
    .option('--wait <duration>', 'how long to wait until everything is stored (default: 60s)', duration)
    .action(async (mode: 'ro' | 'rw', directory: string, options: { force?: true; wait?: number }) => {
      if (process.platform !== 'linux') throw generalFailure('Cannot remount: this works on Linux only');
      const message = await remountDirectory(directory, mode, {
        force: options.force === true,
        ...(options.wait === undefined ? {} : { timeoutMs: options.wait }),
      });
      if (message !== null) process.stderr.write(`leasehold: ${message}\n`);
    });
}

function printMounts(mounts: readonly MountStatus[], isJson: boolean): void {
  if (isJson) {
    printJson(mounts);
    return;
  }
  for (const { directory, source, pid, log, lateErrors } of mounts) {
    const process = pid === null ? 'no visible process' : `process ${pid}, log ${log ?? 'unknown'}`;
    printLine(`${source} on ${directory}: ${process}, ${lateErrors.length} late errors`);
    for (const { time, operation, path, error } of lateErrors)
      printLine(`  ${time} ${operation} of ${path} was dropped: ${error}`);
  }
}

/** @returns the mount options that are also options of the command; `--servers` exists already */
function tableFlags(): Option[] {
  return MOUNT_OPTIONS.flatMap(({ name, flag, valueForm, effect }) => {
    if (flag === undefined || flag === 'servers') return [];
    const option = new Option(
      valueForm === null ? `--${flag}` : `--${flag} <${valueForm.toLowerCase()}>`,
      effect,
    );
    // Parsed here, so that a wrong value is a usage error before any request.
    if (valueForm !== null) {
      option.argParser((text: string) => {
        parseMountOptions([optionText(name, text)]);
        return text;
      });
    }
    return [option];
  });
}

function flagsOf(command: Command): string[] {
  const given = command.opts<Record<string, unknown>>();
  const byFlag = command.options.map(
    (option) => [option.long?.slice(2) ?? '', given[option.attributeName()]] as const,
  );
  const values = Object.fromEntries(
    // Commander takes --no-xattr for the negation of an option "xattr", which is true by default.
    byFlag.map(([flag, value]) => (flag.startsWith('no-') ? [flag, value === false] : [flag, value])),
  );
  return flagOptions({ ...values, servers: undefined });
}

function optionTerm(name: string, value: string | null): string {
  if (value === null) return name;
  return value.startsWith('[') ? `${name}[=${value.slice(1)}` : `${name}=${value}`;
}

function collect(text: string, before: readonly string[]): string[] {
  return [...before, text];
}
