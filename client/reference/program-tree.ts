import type { Argument, Command, Option } from 'commander';

export interface OptionText {
  readonly names: readonly string[];
  /** Name of its value, `<count>` as `COUNT`; null for an option without a value. */
  readonly value: string | null;
  readonly choices: readonly string[];
  readonly description: string;
}

export interface CommandText {
  /** From the name of the program on: `leasehold volume create`. */
  readonly path: string;
  readonly description: string;
  readonly arguments: readonly {
    readonly name: string;
    readonly description: string;
    readonly choices: readonly string[];
  }[];
  readonly options: readonly OptionText[];
  readonly commands: readonly CommandText[];
}

export interface ServerOption {
  readonly name: string;
  readonly value: string | null;
  readonly fallback: string | null;
  readonly help: string;
}

const HELP: OptionText = { names: ['--help'], value: null, choices: [], description: 'show the usage' };

/** What `--help` shows of all commands. @param serverOptions of `leasehold server`, which the program lacks */
export function programText(program: Command, serverOptions: readonly ServerOption[]): CommandText {
  const tree = commandText(program, '');
  const commands = tree.commands.map((command) =>
    command.path === `${tree.path} server`
      ? { ...command, options: [...serverOptions.map(serverOptionText), ...command.options] }
      : command,
  );
  return { ...tree, commands };
}

export function commandsOf(tree: CommandText): CommandText[] {
  return [tree, ...tree.commands.flatMap(commandsOf)];
}

function commandText(command: Command, above: string): CommandText {
  const path = `${above} ${command.name()}`.trim();
  return {
    path,
    description: command.description(),
    arguments: command.registeredArguments.map((argument: Argument) => ({
      name: `${argument.required ? '' : '['}${argument.name().toUpperCase()}${argument.variadic ? '...' : ''}${argument.required ? '' : ']'}`,
      description: argument.description,
      choices: argument.argChoices ?? [],
    })),
    options: [...command.options.filter(({ hidden }) => !hidden).map(optionText), HELP],
    commands: command.commands.map((child) => commandText(child, path)),
  };
}

function optionText(option: Option): OptionText {
  const value = /[<[]([^>\]]+)[>\]]/.exec(option.flags)?.[1] ?? null;
  const { defaultValue } = option;
  const fallback =
    typeof defaultValue === 'string' || typeof defaultValue === 'number' ? ` (default: ${defaultValue})` : '';
  return {
    names: [option.short, option.long].filter((name) => name !== undefined && name !== null),
    value: value === null ? null : value.toUpperCase(),
    choices: option.argChoices ?? [],
    description: `${option.description}${fallback}`,
  };
}

function serverOptionText({ name, value, help, fallback }: ServerOption): OptionText {
  return {
    names: [`--${name}`],
    value,
    choices: [],
    description: fallback === null ? help : `${help} (default: ${fallback})`,
  };
}
