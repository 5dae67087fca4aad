import { type CommandText, commandsOf, type OptionText } from './program-tree.ts';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

export function completionScript(shell: Shell, tree: CommandText): string {
  return WRITERS[shell](tree);
}

const WRITERS: Readonly<Record<Shell, (tree: CommandText) => string>> = {
  bash: bashScript,
  zsh: zshScript,
  fish: fishScript,
};

/** @returns the completion for bash, which completes file names if nothing matches */
function bashScript(tree: CommandText): string {
  const name = tree.path;
  const words = commandsOf(tree).map(
    (command) => `        ${quoted(command.path)}) words=${quoted(wordsOf(command).join(' '))} ;;`,
  );
  const values = choicesOf(tree).map(
    ({ at, choices }) => `    ${at.map(quoted).join(' | ')}) words=${quoted(choices.join(' '))} ;;`,
  );
  return `# Completion of ${name} for bash: source it, or keep it as /usr/share/bash-completion/completions/${name}
_${name}() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]}
  local at=${name} words='' place
  for ((place = 1; place < COMP_CWORD; place++)); do
    case "$at \${COMP_WORDS[place]}" in
      ${pathsBelow(tree)})
        at="$at \${COMP_WORDS[place]}" ;;
    esac
  done
  COMPREPLY=()
  case "$at $before" in
${values.join('\n')}
    ${takingValues(tree)}) return ;;
    *)
      case "$at" in
${words.join('\n')}
      esac ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o default -F _${name} ${name}
`;
}

function zshScript(tree: CommandText): string {
  const name = tree.path;
  const words = commandsOf(tree).map((command) => {
    const lines = describedWordsOf(command).map(([word, text]) => `        ${quoted(`${word}:${text}`)}`);
    return `      ${quoted(command.path)})\n      found=(\n${lines.join('\n')}\n      ) ;;`;
  });
  const values = choicesOf(tree).map(
    ({ at, choices }) =>
      `    ${at.map(quoted).join(' | ')}) compadd -- ${choices.map(quoted).join(' ')}; return ;;`,
  );
  return `#compdef ${name}
# Completion of ${name} for zsh: keep it as _${name} in a folder of $fpath
_${name}() {
  local at=${name} word
  local -a found
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$at $word" in
      ${pathsBelow(tree)})
        at="$at $word" ;;
    esac
  done
  case "$at $words[CURRENT-1]" in
${values.join('\n')}
    ${takingValues(tree)}) _files; return ;;
  esac
  case "$at" in
${words.join('\n')}
  esac
  _describe ${name} found || _files
}
_${name} "$@"
`;
}

function fishScript(tree: CommandText): string {
  const name = tree.path;
  const lines = commandsOf(tree).flatMap((command) => {
    const begin = `complete -c ${name} -n ${fishQuoted(`test (__${name}_at) = '${command.path}'`)}`;
    return [
      ...command.commands.map(
        ({ path, description }) => `${begin} -f -a ${lastWord(path)} -d ${fishQuoted(description)}`,
      ),
      ...command.arguments
        .filter(({ choices }) => choices.length > 0)
        .map(({ choices }) => `${begin} -f -a ${fishQuoted(choices.join(' '))}`),
      ...command.options.map((option) => `${begin} ${fishOption(option)}`),
    ];
  });
  return `# Completion of ${name} for fish: keep it as ~/.config/fish/completions/${name}.fish
function __${name}_at
  set -l at ${name}
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
      case ${commandsBelow(tree).map(fishQuoted).join(' ')}
        set at "$at $word"
    end
  end
  echo $at
end
${lines.join('\n')}
`;
}

function fishOption({ names, value, choices, description }: OptionText): string {
  const flags = names.map((name) => (name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const kind = choices.length > 0 ? `-x -a ${fishQuoted(choices.join(' '))}` : value === null ? '-f' : '-r';
  return [...flags, kind, `-d ${fishQuoted(description)}`].join(' ');
}

function describedWordsOf(command: CommandText): (readonly [string, string])[] {
  return [
    ...command.commands.map(({ path, description }) => [lastWord(path), description] as const),
    ...command.arguments.flatMap(({ choices, description }) =>
      choices.map((choice) => [choice, description] as const),
    ),
    ...command.options.flatMap(({ names, description }) => names.map((name) => [name, description] as const)),
  ];
}

function wordsOf(command: CommandText): string[] {
  return describedWordsOf(command).map(([word]) => word);
}

function commandsBelow(tree: CommandText): string[] {
  return commandsOf(tree)
    .slice(1)
    .map(({ path }) => path);
}

function pathsBelow(tree: CommandText): string {
  return commandsBelow(tree).map(quoted).join(' | ');
}

interface Choices {
  readonly at: readonly string[];
  readonly choices: readonly string[];
}

function choicesOf(tree: CommandText): Choices[] {
  return commandsOf(tree).flatMap(({ path, options }) =>
    options
      .filter(({ choices }) => choices.length > 0)
      .map(({ names, choices }) => ({ at: names.map((name) => `${path} ${name}`), choices })),
  );
}

function takingValues(tree: CommandText): string {
  return commandsOf(tree)
    .flatMap(({ path, options }) =>
      options
        .filter(({ value, choices }) => value !== null && choices.length === 0)
        .flatMap(({ names }) => names.map((name) => quoted(`${path} ${name}`))),
    )
    .join(' | ');
}

function lastWord(path: string): string {
  return path.split(' ').at(-1) ?? path;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function fishQuoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}
