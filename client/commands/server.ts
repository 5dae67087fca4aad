import type { Command } from 'commander';
import { CommandFailure, EXIT_USAGE } from '../failure.ts';

/** `leasehold server` stands in the help; the launcher runs it without coming here, since a client is no server. */
export function addServerCommand(program: Command): void {
  program
    .command('server')
    .description('run one server of a cluster ("leasehold server --help" shows its options)')
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .action(() => {
      throw new CommandFailure(
        EXIT_USAGE,
        'Cannot run a server from here',
        'start it with "npx leasehold server …"',
      );
    });
}
