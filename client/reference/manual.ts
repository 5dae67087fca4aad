import { type CommandText, commandsOf, type OptionText } from './program-tree.ts';

export interface ManualData {
  readonly version: string;
  readonly exitCodes: readonly (readonly [number, string])[];
}

export function manualText(tree: CommandText, { version, exitCodes }: ManualData): string {
  const name = tree.path;
  return [
    `.TH ${name.toUpperCase()} 1 "" "${name} ${version}" "User Commands"`,
    '.SH NAME',
    `${name} \\- ${escaped(lowered(tree.description))}`,
    '.SH SYNOPSIS',
    `.B ${name}`,
    '[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]',
    '.SH DESCRIPTION',
    `${escaped(tree.description)}.`,
    'Each command shows its options with \\fB\\-\\-help\\fR.',
    '.SH OPTIONS',
    ...tree.options.flatMap(optionLines),
    '.SH COMMANDS',
    ...commandsOf(tree)
      .slice(1)
      .filter(({ commands, options }) => commands.length === 0 || options.length > 1)
      .flatMap(commandLines),
    '.SH EXIT STATUS',
    ...exitCodes.flatMap(([code, meaning]) => ['.TP', `.B ${code}`, escaped(meaning)]),
    '.SH ENVIRONMENT',
    '.TP',
    '.B LEASEHOLD_SERVERS',
    'base URLs of the servers, with commas between them, where \\fB\\-\\-servers\\fR names none',
    '.TP',
    '.B LEASEHOLD_OPTION',
    'an option of \\fBleasehold server\\fR that is not given on its command line: LEASEHOLD_CLOCK_SKEW for \\fB\\-\\-clock\\-skew\\fR',
    '',
  ].join('\n');
}

function commandLines(command: CommandText): string[] {
  const words = command.arguments.map(({ name }) => ` \\fI${escaped(name)}\\fR`).join('');
  return [
    `.SS "${escaped(command.path)}${words}"`,
    `${escaped(raised(command.description))}.`,
    ...command.arguments
      .filter(({ description }) => description !== '')
      .flatMap(({ name, description }) => ['.TP', `.I ${escaped(name)}`, escaped(description)]),
    ...command.options.flatMap(optionLines),
  ];
}

function optionLines({ names, value, choices, description }: OptionText): string[] {
  const shown = names.map((name) => `\\fB${escaped(name)}\\fR`).join(', ');
  const values = choices.length === 0 ? '' : ` (one of: ${choices.join(', ')})`;
  return [
    '.TP',
    `${shown}${value === null ? '' : ` \\fI${escaped(value)}\\fR`}`,
    escaped(`${description}${values}`),
  ];
}

/** @returns the text without troff commands, escapes, or hyphens at which a line might break */
function escaped(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll('"', '\\(dq')
    .replace(/^(?=[.'])/, '\\&')
    .replaceAll('\n', ' ');
}

const raised = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
const lowered = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1);
