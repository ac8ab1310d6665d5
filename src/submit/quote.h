// Quotes words for files in other languages, whose parsers then return exactly the same words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::submit {

// The words, each quoted by ShellWord (base/shell_word.h), separated by spaces.
std::string ShellWords(const std::vector<std::string>& words);

// A double-quoted scalar of YAML 1.2, also a JSON string; bytes that are not UTF-8 become U+FFFD.
std::string YamlText(std::string_view text);
// Like YamlText, for `command` and `args` of a container: also escapes $(NAME), which Kubernetes
// would replace.
std::string PodWord(std::string_view word);
std::string PodWords(const std::vector<std::string>& words);  // a list: ["a", "b"]

// A Python literal: the list of words.
std::string PythonWords(const std::vector<std::string>& words);

}  // namespace weft::submit
