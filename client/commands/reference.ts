import { Argument, type Command } from 'commander';
import { completionScript, SHELLS, type Shell } from '../reference/completion.ts';
import { manualText } from '../reference/manual.ts';
import { programText, type ServerOption } from '../reference/program-tree.ts';
import { printText } from '../terminal/output.ts';

export interface ReferenceData {
  readonly version: string;
  readonly exitCodes: readonly (readonly [number, string])[];
  serverOptions(): Promise<readonly ServerOption[]>;
}

/** `completion` and `man`: both outputs are generated from the commands, so they cannot differ from them. */
export function addReferenceCommands(program: Command, facts: ReferenceData): void {
  program
    .command('completion')
    .description('print a script that completes commands and options in a shell')
    .addArgument(new Argument('<shell>', 'which shell').choices(SHELLS))
    .addHelpText('after', '\nFor this shell alone: source <(leasehold completion bash)')
    .action(async (shell: Shell) => {
      printText(completionScript(shell, programText(program, await facts.serverOptions())));
    });

  program
    .command('man')
    .description('print the manual, to be read with man')
    .addHelpText(
      'after',
      '\nTo read it: leasehold man | man -l -\nTo keep it: leasehold man > /usr/local/share/man/man1/leasehold.1',
    )
    .action(async () => {
      const { version, exitCodes } = facts;
      printText(manualText(programText(program, await facts.serverOptions()), { version, exitCodes }));
    });
}
