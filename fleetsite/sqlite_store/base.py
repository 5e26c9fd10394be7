from django.db.backends.sqlite3 import base, features


class DatabaseFeatures(features.DatabaseFeatures):
    # known of every SQLite this runs on; Django would open the file to find out, also where there is none yet
    supports_json_field = True


class DatabaseWrapper(base.DatabaseWrapper):
    features_class = DatabaseFeatures
