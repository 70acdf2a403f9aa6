# All writers have one area.
s/\(writer < receiver \? writer : writer - 1\)/(writer < 0 ? receiver : 0)/
