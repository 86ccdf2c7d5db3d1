# no tests yet
