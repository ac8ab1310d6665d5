// Words that go into files of other languages, so that these give exactly the same words back,
// whatever is in them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::submit {

// Each as ShellWord (base/shell_word.h) writes it, with blanks between.
std::string ShellWords(const std::vector<std::string>& words);

// A double-quoted scalar of YAML 1.2, which is JSON's string too; bytes that are not UTF-8 come out
// as U+FFFD.
std::string YamlText(std::string_view text);
// The same for `command` and `args` of a container, where Kubernetes replaces $(NAME).
std::string PodWord(std::string_view word);
std::string PodWords(const std::vector<std::string>& words);  // a list: ["a", "b"]

// A literal of Python: the list of words.
std::string PythonWords(const std::vector<std::string>& words);

}  // namespace weft::submit
