import { Command, CommanderError, type OutputConfiguration } from 'commander';
import { addBackupCommands } from './commands/backup.ts';
import { addBenchCommand } from './commands/bench.ts';
import { addCertCommands } from './commands/cert.ts';
import { addCheckCommand, addResolveCommand } from './commands/check.ts';
import { addClusterSettingsCommands } from './commands/cluster-settings.ts';
import { addCopyCommand } from './commands/copy.ts';
import { addCsiCommand } from './commands/csi.ts';
import { addDemoCommand } from './commands/demo.ts';
import { addDevCommand } from './commands/dev.ts';
import { addDoctorCommand } from './commands/doctor.ts';
import { addLeaseCommands } from './commands/lease.ts';
import { addLiveCommands } from './commands/live.ts';
import { addMirrorCommand } from './commands/mirror.ts';
import { addMountCommands } from './commands/mount.ts';
import { HELPER_COMMAND, HELPER_NAME, refuseCallOfFuse } from './commands/mount-helper.ts';
import { addPlacementCommands } from './commands/placement.ts';
import { addQuotaCommands } from './commands/quota.ts';
import { addReferenceCommands } from './commands/reference.ts';
import { addReplicaCommands } from './commands/replica.ts';
import { addRetainCommand } from './commands/retain.ts';
import { addScrubCommand } from './commands/scrub.ts';
import { addServerCommand } from './commands/server.ts';
import { addSnapshotCommands } from './commands/snapshot.ts';
import { addStateCommands } from './commands/state.ts';
import { addTokenCommands } from './commands/token.ts';
import { addTransferCommands } from './commands/transfer.ts';
import { addTrashCommands } from './commands/trash.ts';
import { addTreeCommands } from './commands/tree.ts';
import { addVolumeCommands } from './commands/volume.ts';
import { programVersion } from './mounts/programs.ts';
import type { ServerOption } from './reference/program-tree.ts';
import { describeFailure, EXIT_USAGE, usageExit } from './terminal/failure.ts';

const EXIT_CODES: readonly (readonly [number, string])[] = [
  [0, 'ok'],
  [1, 'failed'],
  [2, 'usage or configuration'],
  [3, 'not found'],
  [4, 'precondition'],
  [5, 'temporary: retry'],
  [6, 'authorization'],
  [7, 'degraded'],
  [8, 'integrity'],
];

/** Facts of the server that only the launcher can supply, since `client/` does not import `server/`. */
export interface LauncherServices {
  serverOptions(): Promise<readonly ServerOption[]>;
}

const NO_LAUNCHER: LauncherServices = { serverOptions: async () => [] };

/** Runs one command; `bin/leasehold.js` runs `server` and `mount-daemon` itself. Sets the process's exit code. */
export async function runCli(
  argv: readonly string[],
  launcher: LauncherServices = NO_LAUNCHER,
): Promise<void> {
  // A reader may close the pipe early (`leasehold ls … | head`); that is no failure.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    throw error;
  });
  try {
    refuseCallOfFuse(argv);
    await buildProgram({}, launcher).parseAsync([...argv], { from: 'user' });
  } catch (error) {
    const { exit, lines } = describeExit(error);
    for (const line of lines) process.stderr.write(`${line}\n`);
    process.exitCode = exit;
  }
}

/** @returns the exit code after `error`, and the lines still to be printed */
export function describeExit(error: unknown): { readonly exit: number; readonly lines: readonly string[] } {
  if (!(error instanceof CommanderError)) return describeFailure(error);
  // Commander has printed the message. Help on request is a success, help because no command was given is not.
  return { exit: error.exitCode, lines: [] };
}

/** Builds the parser of all commands. @param output where help and usage errors go */
export function buildProgram(
  output: OutputConfiguration = {},
  launcher: LauncherServices = NO_LAUNCHER,
): Command {
  const program = new Command('leasehold');
  program
    .description('A replicated file system whose servers elect a primary for every file among themselves')
    .version(programVersion())
    .exitOverride(usageExit(EXIT_USAGE))
    .configureOutput({
      ...output,
      outputError: (text, write) => write(usageError(text)),
    })
    // An option belongs to the command it follows: --servers of "dev" is a count.
    .enablePositionalOptions()
    .addHelpText(
      'after',
      `\nExit codes: ${EXIT_CODES.map(([code, meaning]) => `${code} ${meaning}`).join(', ')}`,
    );
  // Before the name of a command it means the same as after it.
  program.option('--servers <urls>', 'base URLs of the servers, for every command that talks to a cluster');
  addServerCommand(program);
  addClusterSettingsCommands(program);
  addDevCommand(program);
  addVolumeCommands(program);
  addSnapshotCommands(program);
  addTransferCommands(program);
  addTreeCommands(program);
  addRetainCommand(program);
  addCopyCommand(program);
  addTrashCommands(program);
  addStateCommands(program);
  addLiveCommands(program);
  addReplicaCommands(program);
  addPlacementCommands(program);
  addQuotaCommands(program);
  addScrubCommand(program);
  addCheckCommand(program);
  addResolveCommand(program);
  addMountCommands(program);
  addCsiCommand(program);
  addLeaseCommands(program);
  addCertCommands(program);
  addTokenCommands(program);
  addDoctorCommand(program);
  addBackupCommands(program);
  addMirrorCommand(program);
  addBenchCommand(program);
  addDemoCommand(program);
  addReferenceCommands(program, { version: programVersion(), exitCodes: EXIT_CODES, ...launcher });
  addUsageHints(program);
  return program;
}

function usageError(text: string): string {
  return text
    .replace(
      /^error: command-argument value '(.*)' is invalid for argument '(.*)'\. /,
      'leasehold: Cannot use "$1" as $2: ',
    )
    .replace(/^error: option '(.*)' argument '(.*)' is invalid\. /, 'leasehold: Cannot use "$2" in $1: ')
    .replace(/^error: /, 'leasehold: ');
}

function addUsageHints(command: Command, path = 'leasehold'): void {
  command.showHelpAfterError(`  "${path} --help" shows the usage`);
  for (const child of command.commands) {
    const name = child.name();
    addUsageHints(child, name === HELPER_COMMAND ? HELPER_NAME : `${path} ${name}`);
  }
}

if (import.meta.main) await runCli(process.argv.slice(2));
