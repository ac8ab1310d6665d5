"""The commands of a program `weft` and their flags, from --help."""
import re
import subprocess

# The subcommand is omitted if it is the only choice (src/cli/train/train.cc).
IMPLIED = {("net",): ("net", "table"), ("train",): ("train", "run"), ("hosts",): ("hosts", "list")}
# Commands that the help of the command above them does not list.
UNLISTED = (("train", "data"), ("train", "estimate"))
# Only weft itself gives these.
HIDDEN = {("worker",): {"--handle", "--neighbours"}}


class Help:
    def __init__(self, weft):
        self.weft = weft
        self.flags = {}  # (command, ...): its flags
        self.examples = []  # (command, line) of "weft run ..." below its flags
        self.read(())
        for command in UNLISTED:
            self.read(command)

    def read(self, command):
        text = subprocess.run([self.weft, *command, "--help"], capture_output=True, text=True,
                              timeout=60).stdout
        flags = set()
        option = re.compile(r"^  ((?:-{1,2}[A-Za-z][\w-]*(?:\{\w+\})?,?)+)", re.MULTILINE)
        for names in option.findall(text):
            flags.update(re.sub(r"\{\w+\}", "", name) for name in names.split(",") if name)
        self.flags[command] = flags | HIDDEN.get(command, set())
        joined = text.replace("\\\n", " ")
        self.examples += [(command, line) for line in
                          re.findall(r"^ +((?:.* && )?weft [a-z-]+ .*)$", joined, re.MULTILINE)]
        below = re.search(r"^Subcommands:\n((?:  .*\n)*)", text, re.MULTILINE)
        for name in re.findall(r"^  ([a-z-]+) ", below[1] if below else "", re.MULTILINE):
            self.read((*command, name))

    def all_flags(self):
        return set().union(*self.flags.values())

    def command_of(self, words):
        """The command that a line's words name, as a key of `flags`."""
        command = ()
        while len(command) < len(words) and (*command, words[len(command)]) in self.flags:
            command = (*command, words[len(command)])
        return IMPLIED.get(command, command) if IMPLIED.get(command) in self.flags else command

    def unknown(self, words):
        """The words of a line that weft does not accept: flag names, or the command itself."""
        command = self.command_of(words)
        if not command and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
            return [words[0]]
        known = self.flags[command]
        wrong = []
        for word in words:
            if word == "--":
                break
            match = re.match(r"(--[A-Za-z][\w-]*|-[A-Za-z])(?:$|=)", word)
            if match and match[1].replace("_", "-") not in known and match[1] not in known:
                wrong.append(match[1])
        return wrong
