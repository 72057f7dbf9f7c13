// Reads tests/data/learning_rules.txt: cases of named arrays of numbers.
#pragma once

#include <cstddef>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "reverie/base/check.h"

namespace reverie {

struct NumberArray {
  std::vector<std::size_t> extents;
  std::vector<double> numbers;  // row-major

  std::vector<float> floats() const { return {numbers.begin(), numbers.end()}; }
  // The number of an array without extents.
  double scalar() const {
    REVERIE_CHECK(extents.empty() && numbers.size() == 1);
    return numbers[0];
  }
};

struct NumberCase {
  std::string rule;
  std::string about;
  std::map<std::string, NumberArray> arguments;
  std::map<std::string, NumberArray> results;

  const NumberArray& argument(const std::string& name) const { return arguments.at(name); }
  std::vector<float> floats(const std::string& name) const { return arguments.at(name).floats(); }
  float scalar(const std::string& name) const {
    return static_cast<float>(arguments.at(name).scalar());
  }
};

inline std::vector<NumberCase> read_number_table(const std::string& path) {
  std::ifstream file(path);
  REVERIE_CHECK(file.good());
  std::vector<NumberCase> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word[0] == '#') continue;
    if (word == "case") {
      NumberCase& made = cases.emplace_back();
      words >> made.rule >> word;
      std::getline(words >> std::ws, made.about);
      continue;
    }
    const bool is_result = word == "->";
    if (is_result) words >> word;
    NumberArray& array = (is_result ? cases.back().results : cases.back().arguments)[word];
    std::size_t count = 1;
    for (std::string extent; words >> extent && extent != ":";) {
      array.extents.push_back(std::stoul(extent));
      count *= array.extents.back();
    }
    for (double number = 0; words >> number;) array.numbers.push_back(number);
    REVERIE_CHECK(array.numbers.size() == count);
  }
  return cases;
}

}  // namespace reverie
